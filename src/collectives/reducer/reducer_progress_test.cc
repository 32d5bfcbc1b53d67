// What a node reports of folds that run: how much is computed, and how the inputs arrive.
#include <cstdint>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "src/collectives/reducer/reducer.h"
#include "src/collectives/testing/reduce_world.h"
#include "src/directory/core/validate.h"

namespace phalanx::collectives {
namespace {

using testing::FoldOf;
using testing::Named;
using testing::Numbers;
using testing::ReduceNode;
using testing::ReduceWorld;
using testing::Source;
using testing::Version;

constexpr uint64_t kCount = 100'000;
constexpr uint64_t kBytes = 4 * kCount;

class ReducerProgressTest : public ::testing::Test {
 protected:
  const ObjectId target_ = Named("target", 0);

  // More than fits into one message.
  static Generation PutLarge(ReduceNode& node, int n, uint64_t count) {
    const object_store::WriteGrant grant = node.Create(Source(n), 4 * count);
    node.Write(grant, Numbers(n, count), 4 * count);
    return grant.generation;
  }
  bool Ready(ReduceNode& node) {
    return world_.RunUntil([&] { return !node.Reports(v1::FoldReport::READY).empty(); });
  }
  // The reports of the fold itself, without those of its inputs.
  static std::vector<v1::FoldReport> WithoutPace(ReduceNode& node) {
    std::vector<v1::FoldReport> reports;
    for (const v1::FoldReport& report : node.Reports(v1::FoldReport::PROGRESS)) {
      if (!report.has_pace()) reports.push_back(report);
    }
    return reports;
  }

  ReduceWorld world_;
};

TEST_F(ReducerProgressTest, ProgressIsReportedDuringAFold) {
  ReduceNode& root = world_.Add("root");
  const object_store::WriteGrant grant = root.Create(Source(1), kBytes);
  root.Shard(FoldOf(target_, Version(1), kBytes)
                 .Source(Source(1), grant.generation)
                 .Inline(Numbers(2, kCount)));
  root.Write(grant, Numbers(1, kCount), kBytes / 4);
  world_.RunFor(absl::Seconds(2));
  const auto progress = root.Reports(v1::FoldReport::PROGRESS);
  ASSERT_EQ(progress.size(), 1u) << "only what is news";
  EXPECT_EQ(progress[0].watermark(), kBytes / 4);
  EXPECT_GT(progress[0].bytes_per_second(), 0);
}

TEST_F(ReducerProgressTest, ALargeFoldReportsItsProgressAtEachEighth) {
  constexpr uint64_t kLargeCount = uint64_t{4} << 20;
  constexpr uint64_t kEighth = 4 * kLargeCount / 8;
  ReduceNode& a = world_.Add("a");
  ReduceNode& root = world_.Add("root");
  const Generation of_a = PutLarge(a, 1, kLargeCount);
  const Generation g = PutLarge(root, 2, kLargeCount);
  a.Shard(FoldOf(target_, Version(1), 4 * kLargeCount).Source(Source(1), of_a));
  root.Shard(FoldOf(target_, Version(2), 4 * kLargeCount)
                 .Slot(a, Version(1))
                 .Source(Source(2), g)
                 .Root({Source(1), Source(2)}));
  ASSERT_TRUE(Ready(root));
  const auto progress = WithoutPace(root);
  ASSERT_EQ(progress.size(), 7u);
  for (uint64_t i = 0; i < progress.size(); ++i) {
    EXPECT_GE(progress[i].watermark(), (i + 1) * kEighth);
    EXPECT_LT(progress[i].watermark(), (i + 1) * kEighth + kEighth / 4);
  }
}

TEST_F(ReducerProgressTest, AnInputThatCeasesAndGoesOnIsReported) {
  constexpr uint64_t kPiece = uint64_t{1} << 20;
  constexpr uint64_t kLargeBytes = 16 * kPiece;
  ReduceNode& a = world_.Add("a");
  ReduceNode& root = world_.Add("root");
  const object_store::WriteGrant writer = a.Create(Source(1), kLargeBytes);
  const Generation g = PutLarge(root, 2, kLargeBytes / 4);
  const std::string numbers = Numbers(1, kLargeBytes / 4);
  a.Write(writer, numbers, kPiece);
  a.Shard(FoldOf(target_, Version(1), kLargeBytes).Source(Source(1), writer.generation));
  root.Shard(FoldOf(target_, Version(2), kLargeBytes)
                 .Slot(a, Version(1))
                 .Source(Source(2), g)
                 .Root({Source(1), Source(2)}));
  const auto paces = [&root] {
    std::vector<v1::InputPace> all;
    for (const v1::FoldReport& report : root.Reports(v1::FoldReport::PROGRESS)) {
      if (report.has_pace()) all.push_back(report.pace());
    }
    return all;
  };
  for (uint64_t piece = 2; piece <= 8; ++piece) {
    world_.RunFor(absl::Milliseconds(20));
    a.Write(writer, numbers, piece * kPiece);
  }
  world_.RunFor(absl::Milliseconds(150));
  ASSERT_FALSE(paces().empty());
  const v1::InputPace silence = paces().back();
  EXPECT_GE(silence.silent_ns(), 30'000'000u);
  EXPECT_GT(silence.bytes_per_second(), 0) << "before";
  EXPECT_EQ(silence.watermark(), 8 * kPiece);
  EXPECT_EQ(directory::FromProto(silence.sender()), a.self());
  const size_t before = paces().size();
  a.Write(writer, numbers, kLargeBytes);
  ASSERT_TRUE(Ready(root));
  ASSERT_GT(paces().size(), before);
  EXPECT_EQ(paces()[before].silent_ns(), 0u) << "it has ended";
}

TEST_F(ReducerProgressTest, AFoldInATreeOfManySlotsReportsProgressLessOften) {
  constexpr uint64_t kLargeCount = uint64_t{4} << 20;
  ReduceNode& a = world_.Add("a");
  ReduceNode& root = world_.Add("root");
  const Generation of_a = PutLarge(a, 1, kLargeCount);
  const Generation g = PutLarge(root, 2, kLargeCount);
  a.Shard(FoldOf(target_, Version(1), 4 * kLargeCount).Source(Source(1), of_a));
  FoldOf fold(target_, Version(2), 4 * kLargeCount);
  fold.Slot(a, Version(1)).Source(Source(2), g).Root({Source(1), Source(2)});
  fold.fold().set_slots(1000);  // 100 ms
  root.Shard(fold);
  ASSERT_TRUE(Ready(root));
  EXPECT_EQ(WithoutPace(root).size(), 1u);
}

}  // namespace
}  // namespace phalanx::collectives
