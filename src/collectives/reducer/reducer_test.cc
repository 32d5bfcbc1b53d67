#include "src/collectives/reducer/reducer.h"

#include <algorithm>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "src/collectives/testing/reduce_world.h"
#include "src/common/testing/scoped_defect.h"
#include "src/directory/core/reduce_messages.h"

namespace phalanx::collectives {
namespace {

using testing::CommitOf;
using testing::DropOf;
using testing::FoldOf;
using testing::Named;
using testing::Numbers;
using testing::ReduceNode;
using testing::ReduceWorld;
using testing::Source;
using testing::SumOf;
using testing::Version;

constexpr uint64_t kCount = 100'000;
constexpr uint64_t kBytes = 4 * kCount;
constexpr uint64_t kHeldBack = 4096;

class ReducerTest : public ::testing::Test {
 protected:
  const ObjectId target_ = Named("target", 0);

  // A fold of that source alone, on the node that holds it.
  void PlaceLeaf(ReduceNode& node, int n, uint64_t version) {
    const Generation generation = node.Put(Source(n), Numbers(n, kCount));
    node.Shard(FoldOf(target_, Version(version), kBytes).Source(Source(n), generation));
  }
  bool Ready(ReduceNode& node) {
    return world_.RunUntil([&] { return !node.Reports(v1::FoldReport::READY).empty(); });
  }
  void CommitAndExpect(ReduceNode& root, uint64_t version, const std::string& expected) {
    ASSERT_TRUE(Ready(root));
    EXPECT_FALSE(root.Complete(target_)) << "not before it is committed";
    root.Shard(CommitOf(target_, Version(version)));
    ASSERT_TRUE(world_.RunUntil([&] { return root.Complete(target_); }));
    EXPECT_EQ(root.Published(target_), expected);
  }
  void DropAll(const std::vector<std::pair<ReduceNode*, uint64_t>>& folds) {
    for (const auto& [node, version] : folds) node->Shard(DropOf(target_, Version(version)));
    world_.RunFor(absl::Milliseconds(100));
  }
  // Only these objects' bytes are counted, and only primaries are pinned.
  void ExpectHoldsOnly(ReduceNode& node, uint64_t bytes) {
    EXPECT_EQ(node.store().stats().used_bytes, bytes);
    EXPECT_EQ(node.store().stats().pins, 0u);
    EXPECT_EQ(node.reducer().stats().folds, 0u);
    EXPECT_EQ(node.reducer().stats().scratch_bytes, 0u);
    EXPECT_EQ(node.store().stats().clients, 1u) << "the test's own";
    EXPECT_TRUE(node.store().CheckInvariants().ok()) << node.store().CheckInvariants();
    EXPECT_TRUE(node.reducer().CheckInvariants().ok());
  }

  ReduceWorld world_;
};

TEST_F(ReducerTest, AChainOfThreeNodesSumsTheirSources) {
  ReduceNode& a = world_.Add("a");
  ReduceNode& b = world_.Add("b");
  ReduceNode& c = world_.Add("c");
  PlaceLeaf(a, 1, 1);
  const Generation of_b = b.Put(Source(2), Numbers(2, kCount));
  const Generation of_c = c.Put(Source(3), Numbers(3, kCount));
  b.Shard(FoldOf(target_, Version(2), kBytes).Slot(a, Version(1)).Source(Source(2), of_b));
  c.Shard(FoldOf(target_, Version(3), kBytes)
              .Slot(b, Version(2))
              .Source(Source(3), of_c)
              .Root({Source(1), Source(2), Source(3)}));
  CommitAndExpect(c, 3, SumOf({1, 2, 3}, kCount));
  DropAll({{&a, 1}, {&b, 2}, {&c, 3}});
  ExpectHoldsOnly(a, kBytes);
  ExpectHoldsOnly(b, kBytes);
  ExpectHoldsOnly(c, 2 * kBytes + 3 * ObjectId::kSize);
}

TEST_F(ReducerTest, ARelayHandsAnOutputOnUnderItsVersion) {
  ReduceNode& a = world_.Add("a");
  ReduceNode& relay = world_.Add("relay");
  ReduceNode& root = world_.Add("root");
  PlaceLeaf(a, 1, 1);
  relay.Shard(FoldOf(target_, Version(1), kBytes).Slot(a, Version(1)).Relay());
  const Generation g = root.Put(Source(2), Numbers(2, kCount));
  root.Shard(FoldOf(target_, Version(2), kBytes)
                 .Slot(relay, Version(1))
                 .Source(Source(2), g)
                 .Root({Source(1), Source(2)}));
  CommitAndExpect(root, 2, SumOf({1, 2}, kCount));
  DropAll({{&a, 1}, {&relay, 1}, {&root, 2}});
  ExpectHoldsOnly(relay, 0);
}

TEST_F(ReducerTest, OnlyARelayHasTheVersionOfItsInput) {
  ReduceNode& a = world_.Add("a");
  ReduceNode& relay = world_.Add("relay");
  relay.Shard(FoldOf(target_, Version(1), kBytes).Slot(a, Version(1)));
  relay.Shard(FoldOf(target_, Version(2), kBytes).Slot(a, Version(1)).Relay());
  EXPECT_EQ(relay.Reports(v1::FoldReport::DROPPED).size(), 2u);
}

TEST_F(ReducerTest, ASenderThatIsNotConnectedIsReportedWhileTheFoldTriesOn) {
  ReduceNode& a = world_.Add("a");
  ReduceNode& root = world_.Add("root");
  PlaceLeaf(a, 1, 1);
  const Generation g = root.Put(Source(2), Numbers(2, kCount));
  world_.fabric().PartitionBothWays("a", "root");
  root.Shard(FoldOf(target_, Version(2), kBytes)
                 .Slot(a, Version(1))
                 .Source(Source(2), g)
                 .Root({Source(1), Source(2)}));
  world_.RunFor(ReducerOptions().connect_patience - absl::Milliseconds(5));
  EXPECT_TRUE(root.Reports(v1::FoldReport::FAILED).empty());
  world_.RunFor(absl::Milliseconds(10));
  const std::vector<v1::FoldReport> reports = root.Reports(v1::FoldReport::FAILED);
  ASSERT_EQ(reports.size(), 1u);
  EXPECT_EQ(directory::FromProto(reports[0].sender()), a.self());
  EXPECT_EQ(reports[0].code(), static_cast<int>(absl::StatusCode::kDeadlineExceeded));
  EXPECT_EQ(reports[0].message(), "no connection after 250ms");
  world_.fabric().HealAll();
  CommitAndExpect(root, 2, SumOf({1, 2}, kCount));
}

TEST_F(ReducerTest, TheTargetIsAnnouncedWithItsVersionAndSources) {
  ReduceNode& a = world_.Add("a");
  const Generation g = a.Put(Source(1), Numbers(1, kCount));
  a.Shard(FoldOf(target_, Version(7), kBytes).Source(Source(1), g).Root({Source(1)}));
  CommitAndExpect(a, 7, Numbers(1, kCount));
  int announced = 0;
  for (const auto& [shard, message] : a.sent()) {
    if (!message.has_announce_create()) continue;
    const v1::AnnounceCreate& announce = message.announce_create();
    if (announce.object_id() != object_store::IdBytes(target_)) continue;
    ++announced;
    EXPECT_EQ(directory::VersionFromProto(announce.version()), Version(7));
    EXPECT_EQ(announce.info().reduced_from(), object_store::IdBytes(Source(1)));
  }
  EXPECT_EQ(announced, 1);
  EXPECT_TRUE(a.sent().back().message.has_announce_seal());
}

TEST_F(ReducerTest, TheTargetGoesWithTheMetadataOfTheOrder) {
  ReduceNode& large = world_.Add("large");
  const Generation g = large.Put(Source(1), Numbers(1, kCount));
  large.Shard(FoldOf(target_, Version(1), kBytes)
                  .Source(Source(1), g)
                  .Root({Source(1)})
                  .Metadata("a matrix"));
  CommitAndExpect(large, 1, Numbers(1, kCount));
  ReduceNode& small = world_.Add("small");
  small.Shard(FoldOf(target_, Version(2), 40)
                  .Inline(Numbers(1, 10))
                  .Root({Source(1)})
                  .Committed()
                  .Metadata("a matrix"));
  ASSERT_TRUE(world_.RunUntil([&] { return small.Complete(target_); }));
  for (ReduceNode* node : {&large, &small}) {
    int announced = 0;
    for (const auto& [shard, message] : node->sent()) {
      if (!message.has_announce_create()) continue;
      if (message.announce_create().object_id() != object_store::IdBytes(target_)) continue;
      ++announced;
      EXPECT_EQ(message.announce_create().info().metadata(), "a matrix");
    }
    EXPECT_EQ(announced, 1);
  }
  DropAll({{&large, 1}, {&small, 2}});
  ExpectHoldsOnly(small, 40 + ObjectId::kSize + 8);
}

TEST_F(ReducerTest, ATreeWithSeveralChildrenFoldsInItsOrder) {
  ReduceNode& root = world_.Add("root");
  std::vector<ReduceNode*> children;
  FoldOf fold(target_, Version(9), kBytes);
  for (int n = 1; n <= 4; ++n) {
    children.push_back(&world_.Add(absl::StrCat("child", n)));
    PlaceLeaf(*children.back(), n, n);
    fold.Slot(*children.back(), Version(n));
    if (n > 1) continue;
    fold.Source(Source(8), root.Put(Source(8), Numbers(8, kCount)));
    fold.Source(Source(9), root.Put(Source(9), Numbers(9, kCount)));
  }
  root.Shard(fold.Root({Source(1), Source(8), Source(9), Source(2), Source(3), Source(4)}));
  world_.RunFor(absl::Milliseconds(1));
  EXPECT_EQ(root.reducer().stats().scratch_bytes, 3 * kBytes) << "the first is pulled in place";
  CommitAndExpect(root, 9, SumOf({1, 8, 9, 2, 3, 4}, kCount));
  DropAll({{&root, 9}});
  ExpectHoldsOnly(root, 3 * kBytes + 6 * ObjectId::kSize);
}

TEST_F(ReducerTest, AllButTheEndCanBeReadBeforeTheCommit) {
  ReduceNode& a = world_.Add("a");
  ReduceNode& root = world_.Add("root");
  PlaceLeaf(a, 1, 1);
  const Generation g = root.Put(Source(2), Numbers(2, kCount));
  root.Shard(FoldOf(target_, Version(2), kBytes)
                 .Slot(a, Version(1))
                 .Source(Source(2), g)
                 .Root({Source(1), Source(2)}));
  ASSERT_TRUE(Ready(root));
  world_.RunFor(absl::Seconds(1));
  const std::string there = root.Published(target_);
  EXPECT_EQ(there, SumOf({1, 2}, kCount).substr(0, kBytes - kHeldBack));
}

TEST_F(ReducerTest, AFoldStreamsBehindASourceThatIsStillWritten) {
  ReduceNode& a = world_.Add("a");
  ReduceNode& root = world_.Add("root");
  const std::string bytes = Numbers(1, kCount);
  const object_store::WriteGrant grant = a.Create(Source(1), kBytes);
  a.Shard(FoldOf(target_, Version(1), kBytes).Source(Source(1), grant.generation));
  const Generation g = root.Put(Source(2), Numbers(2, kCount));
  root.Shard(FoldOf(target_, Version(2), kBytes)
                 .Slot(a, Version(1))
                 .Source(Source(2), g)
                 .Root({Source(1), Source(2)}));
  a.Write(grant, bytes, 100'001);
  ASSERT_TRUE(world_.RunUntil([&] { return root.Published(target_).size() == 100'000; }));
  a.Write(grant, bytes, kBytes);
  CommitAndExpect(root, 2, SumOf({1, 2}, kCount));
}

TEST_F(ReducerTest, ARangeOfEachSourceIsReducedAlone) {
  ReduceNode& a = world_.Add("a");
  ReduceNode& root = world_.Add("root");
  const uint64_t first = 1000, count = 50'000;
  const object_store::WriteGrant grant = a.Create(Source(1), kBytes, /*slices=*/5);
  a.Write(grant, Numbers(1, kCount), kBytes);
  a.Shard(
      FoldOf(target_, Version(1), 4 * count).Source(Source(1), grant.generation).Range(4 * first));
  const Generation g = root.Put(Source(2), Numbers(2, kCount));
  root.Shard(FoldOf(target_, Version(2), 4 * count)
                 .Slot(a, Version(1))
                 .Source(Source(2), g)
                 .Range(4 * first)
                 .Root({Source(1), Source(2)}));
  CommitAndExpect(root, 2, SumOf({1, 2}, count, first));
}

TEST_F(ReducerTest, SmallSourcesAreFoldedFromTheOrderItself) {
  ReduceNode& root = world_.Add("root");
  root.Shard(FoldOf(target_, Version(1), 40)
                 .Inline(Numbers(1, 10))
                 .Inline(Numbers(2, 10))
                 .Inline(Numbers(3, 10))
                 .Root({Source(1), Source(2), Source(3)})
                 .Committed());
  ASSERT_TRUE(world_.RunUntil([&] { return root.Complete(target_); }));
  EXPECT_EQ(root.Published(target_), SumOf({1, 2, 3}, 10));
  EXPECT_TRUE(root.Reports(v1::FoldReport::READY).empty());
}

TEST_F(ReducerTest, ASmallResultIsAnnouncedOnceWithItsBytes) {
  ReduceNode& root = world_.Add("root");
  root.Shard(FoldOf(target_, Version(1), 40)
                 .Inline(Numbers(1, 10))
                 .Inline(Numbers(2, 10))
                 .Root({Source(1), Source(2)})
                 .Committed());
  ASSERT_TRUE(world_.RunUntil([&] { return root.Complete(target_); }));
  world_.RunFor(absl::Milliseconds(1));
  ASSERT_EQ(root.sent().size(), 1u);
  const v1::AnnounceCreate& announce = root.sent()[0].message.announce_create();
  EXPECT_EQ(directory::VersionFromProto(announce.version()), Version(1));
  EXPECT_TRUE(announce.complete());
  EXPECT_EQ(announce.inline_bytes(), SumOf({1, 2}, 10));
  EXPECT_EQ(announce.info().reduced_from().size(), 2 * ObjectId::kSize);
  EXPECT_EQ(root.reducer().stats().folds_done, 1u);
  DropAll({{&root, 1}});
  ExpectHoldsOnly(root, 40 + 2 * ObjectId::kSize);
}

TEST_F(ReducerTest, ASmallSourceOfThisNodeIsFoldedWithThoseInTheOrder) {
  ReduceNode& root = world_.Add("root");
  const Generation g = root.Put(Source(2), Numbers(2, 30));
  root.sent().clear();
  root.Shard(FoldOf(target_, Version(1), 40)
                 .Inline(Numbers(1, 30).substr(4 * 5, 40))
                 .Source(Source(2), g)
                 .Range(4 * 5)
                 .Root({Source(1), Source(2)})
                 .Committed());
  ASSERT_TRUE(world_.RunUntil([&] { return root.Complete(target_); }));
  EXPECT_EQ(root.sent()[0].message.announce_create().inline_bytes(), SumOf({1, 2}, 10, 5));
  DropAll({{&root, 1}});
  ExpectHoldsOnly(root, 4 * 30 + 40 + 2 * ObjectId::kSize);
}

TEST_F(ReducerTest, ASmallSourceThatIsStillWrittenIsWaitedFor) {
  ReduceNode& root = world_.Add("root");
  const std::string bytes = Numbers(2, 10);
  const object_store::WriteGrant grant = root.Create(Source(2), bytes.size());
  root.Shard(FoldOf(target_, Version(1), 40)
                 .Inline(Numbers(1, 10))
                 .Source(Source(2), grant.generation)
                 .Root({Source(1), Source(2)})
                 .Committed());
  world_.RunFor(absl::Milliseconds(5));
  EXPECT_FALSE(root.Complete(target_));
  root.Write(grant, bytes, bytes.size());
  ASSERT_TRUE(world_.RunUntil([&] { return root.Complete(target_); }));
  EXPECT_EQ(root.Published(target_), SumOf({1, 2}, 10));
}

TEST_F(ReducerTest, ASmallResultWithoutMemoryIsRefused) {
  ReduceWorld::Options options;
  options.capacity = 4096;
  ReduceNode& root = world_.Add("root", options);
  root.Put(Source(9), std::string(4000, 'x'));
  root.Shard(FoldOf(target_, Version(1), 400)
                 .Inline(Numbers(1, 100))
                 .Inline(Numbers(2, 100))
                 .Root({Source(1), Source(2)})
                 .Committed());
  ASSERT_TRUE(world_.RunUntil([&] { return !root.Reports(v1::FoldReport::NO_MEMORY).empty(); }));
  world_.RunFor(absl::Milliseconds(100));
  ExpectHoldsOnly(root, 4000);
}

TEST_F(ReducerTest, FoldsOfOneNodeFeedEachOtherInMemory) {
  ReduceNode& a = world_.Add("a");
  const Generation g1 = a.Put(Source(1), Numbers(1, kCount));
  const Generation g2 = a.Put(Source(2), Numbers(2, kCount));
  const Generation g3 = a.Put(Source(3), Numbers(3, kCount));
  // The parent first: it waits for the child, which is ordered after it.
  a.Shard(FoldOf(target_, Version(2), kBytes)
              .Slot(a, Version(1))
              .Source(Source(3), g3)
              .Root({Source(1), Source(2), Source(3)}));
  world_.RunFor(absl::Milliseconds(5));
  a.Shard(FoldOf(target_, Version(1), kBytes).Source(Source(1), g1).Source(Source(2), g2));
  CommitAndExpect(a, 2, SumOf({1, 2, 3}, kCount));
  EXPECT_EQ(a.plane().plane().stats().bytes_received, 0u);
  EXPECT_TRUE(a.Reports(v1::FoldReport::FAILED).empty());
  DropAll({{&a, 1}, {&a, 2}});
  ExpectHoldsOnly(a, 4 * kBytes + 3 * ObjectId::kSize);
}

TEST_F(ReducerTest, AReceiverMayAskBeforeTheFoldIsOrdered) {
  ReduceNode& a = world_.Add("a");
  ReduceNode& root = world_.Add("root");
  const Generation g1 = a.Put(Source(1), Numbers(1, kCount));
  const Generation g2 = root.Put(Source(2), Numbers(2, kCount));
  root.Shard(FoldOf(target_, Version(2), kBytes)
                 .Slot(a, Version(1))
                 .Source(Source(2), g2)
                 .Root({Source(1), Source(2)}));
  world_.RunFor(absl::Milliseconds(50));
  a.Shard(FoldOf(target_, Version(1), kBytes).Source(Source(1), g1));
  CommitAndExpect(root, 2, SumOf({1, 2}, kCount));
  EXPECT_TRUE(root.Reports(v1::FoldReport::FAILED).empty());
}

TEST_F(ReducerTest, ASlotWithoutItsFoldIsReportedAsFailed) {
  ReduceNode& a = world_.Add("a");
  ReduceNode& root = world_.Add("root");
  root.Shard(FoldOf(target_, Version(2), kBytes).Slot(a, Version(1)).Root({Source(1)}));
  ASSERT_TRUE(world_.RunUntil([&] { return !root.Reports(v1::FoldReport::FAILED).empty(); }));
  EXPECT_EQ(root.Reports(v1::FoldReport::FAILED)[0].code(),
            static_cast<int>(absl::StatusCode::kNotFound));
}

TEST_F(ReducerTest, TheSameVersionOnAnotherNodeContinuesAtTheWatermark) {
  ReduceNode& a = world_.Add("a");
  ReduceNode& b = world_.Add("b");
  ReduceNode& root = world_.Add("root");
  const std::string bytes = Numbers(1, kCount);
  const object_store::WriteGrant grant = a.Create(Source(1), kBytes);
  a.Shard(FoldOf(target_, Version(1), kBytes).Source(Source(1), grant.generation));
  a.Write(grant, bytes, kBytes / 2);
  const Generation g2 = root.Put(Source(2), Numbers(2, kCount));
  const auto fold_from = [&](const ReduceNode& sender) {
    return FoldOf(target_, Version(3), kBytes)
        .Slot(sender, Version(1))
        .Source(Source(2), g2)
        .Root({Source(1), Source(2)});
  };
  root.Shard(fold_from(a));
  ASSERT_TRUE(world_.RunUntil([&] { return root.Published(target_).size() == kBytes / 2; }));
  // Another node has the same source complete: the version names the same bytes there.
  b.Shard(FoldOf(target_, Version(1), kBytes).Inline(bytes));
  root.Shard(fold_from(b));
  CommitAndExpect(root, 3, SumOf({1, 2}, kCount));
  EXPECT_EQ(root.plane().plane().stats().bytes_received, kBytes) << "no byte twice";
  EXPECT_EQ(b.plane().plane().stats().pushes_active, 0);
}

// b folds 1 and 2, root folds 3 behind b. When half of it is there, b gives up.
class MovedFoldTest : public ReducerTest {
 protected:
  MovedFoldTest() {
    PlaceLeaf(a_, 1, /*version=*/1);
    const std::string bytes = Numbers(2, kCount);
    const object_store::WriteGrant grant = b_.Create(Source(2), kBytes);
    b_.Shard(Middle().Source(Source(2), grant.generation));
    b_.Write(grant, bytes, kBytes / 2);
    g3_ = root_.Put(Source(3), Numbers(3, kCount));
    root_.Shard(RootFrom(b_));
    EXPECT_TRUE(world_.RunUntil([&] { return root_.Published(target_).size() == kBytes / 2; }));
    b_.Shard(DropOf(target_, Version(2)));
    EXPECT_TRUE(world_.RunUntil([&] { return !root_.Reports(v1::FoldReport::FAILED).empty(); }));
  }
  FoldOf Middle() { return FoldOf(target_, Version(2), kBytes).Slot(a_, Version(1)); }
  FoldOf RootFrom(const ReduceNode& node) {
    return FoldOf(target_, Version(3), kBytes)
        .Slot(node, Version(2))
        .Source(Source(3), g3_)
        .Root({Source(1), Source(2), Source(3)});
  }
  // The fold of the version that b had.
  void PlaceAt(ReduceNode& node, uint64_t begin) {
    const Generation generation = node.Put(Source(2), Numbers(2, kCount));
    node.Shard(Middle().Source(Source(2), generation).Begin(begin));
  }

  ReduceNode& a_ = world_.Add("a");
  ReduceNode& b_ = world_.Add("b");
  ReduceNode& root_ = world_.Add("root");
  Generation g3_;
};

TEST_F(MovedFoldTest, TheFoldAboveReportsHowMuchOfTheInputItHas) {
  EXPECT_EQ(root_.Reports(v1::FoldReport::FAILED)[0].watermark(), kBytes / 2);
}

TEST_F(MovedFoldTest, ContinuesWhereTheFoldAboveIs) {
  ReduceNode& c = world_.Add("c");
  PlaceAt(c, kBytes / 2);
  root_.Shard(RootFrom(c));
  CommitAndExpect(root_, 3, SumOf({1, 2, 3}, kCount));
  EXPECT_EQ(root_.plane().plane().stats().bytes_received, kBytes) << "no byte twice";
  EXPECT_EQ(c.plane().plane().stats().bytes_received, kBytes / 2);
  EXPECT_EQ(c.reducer().stats().bytes_folded, kBytes) << "two operands";
}

TEST_F(MovedFoldTest, BeginsWithAWholeElement) {
  ReduceNode& c = world_.Add("c");
  PlaceAt(c, kBytes / 2 - 3);
  root_.Shard(RootFrom(c));
  CommitAndExpect(root_, 3, SumOf({1, 2, 3}, kCount));
  EXPECT_EQ(c.plane().plane().stats().bytes_received, kBytes / 2 + 4);
}

TEST_F(MovedFoldTest, HasNothingToDoIfTheFoldAboveHasEveryByte) {
  ReduceNode& c = world_.Add("c");
  PlaceAt(c, kBytes);
  world_.RunFor(absl::Milliseconds(50));
  EXPECT_EQ(c.plane().plane().stats().bytes_received, 0u);
  EXPECT_TRUE(c.Reports(v1::FoldReport::FAILED).empty());
}

// The fold above moves, too, and has nothing.
TEST_F(MovedFoldTest, ComputesTheFirstBytesWhenANodeAsksForThem) {
  ReduceNode& c = world_.Add("c");
  ReduceNode& other = world_.Add("other");
  PlaceAt(c, kBytes / 2);
  world_.RunFor(absl::Milliseconds(1));
  g3_ = other.Put(Source(3), Numbers(3, kCount));
  other.Shard(RootFrom(c));
  CommitAndExpect(other, 3, SumOf({1, 2, 3}, kCount));
  DropAll({{&c, 2}, {&other, 3}});
  ExpectHoldsOnly(c, kBytes);
}

TEST_F(MovedFoldTest, ComputesTheFirstBytesForAFoldOfTheSameNode) {
  ReduceNode& c = world_.Add("c");
  PlaceAt(c, kBytes / 2);
  world_.RunFor(absl::Milliseconds(1));
  g3_ = c.Put(Source(3), Numbers(3, kCount));
  c.Shard(RootFrom(c));
  CommitAndExpect(c, 3, SumOf({1, 2, 3}, kCount));
  DropAll({{&c, 2}, {&c, 3}});
  ExpectHoldsOnly(c, 3 * kBytes + 3 * ObjectId::kSize);
}

TEST_F(MovedFoldTest, ADefectThatServesTheFirstBytesAllTheSameIsSeen) {
  const ::phalanx::testing::ScopedDefect on(Defect::kBytesBelowBeginServed);
  ReduceNode& c = world_.Add("c");
  ReduceNode& other = world_.Add("other");
  PlaceAt(c, kBytes / 2);
  g3_ = other.Put(Source(3), Numbers(3, kCount));
  other.Shard(RootFrom(c));
  ASSERT_TRUE(Ready(other));
  EXPECT_NE(other.Published(target_), SumOf({1, 2, 3}, kCount).substr(0, kBytes - kHeldBack));
}

TEST_F(ReducerTest, ADeadSenderIsReportedAndTriedAgain) {
  ReduceNode& a = world_.Add("a");
  ReduceNode& root = world_.Add("root");
  const std::string bytes = Numbers(1, kCount);
  const object_store::WriteGrant grant = a.Create(Source(1), kBytes);
  a.Shard(FoldOf(target_, Version(1), kBytes).Source(Source(1), grant.generation));
  a.Write(grant, bytes, kBytes / 2);
  const Generation g2 = root.Put(Source(2), Numbers(2, kCount));
  root.Shard(FoldOf(target_, Version(3), kBytes)
                 .Source(Source(2), g2)
                 .Slot(a, Version(1))
                 .Root({Source(2), Source(1)}));
  ASSERT_TRUE(world_.RunUntil([&] { return root.Published(target_).size() == kBytes / 2; }));
  a.Shard(DropOf(target_, Version(1)));
  ASSERT_TRUE(world_.RunUntil([&] { return !root.Reports(v1::FoldReport::FAILED).empty(); }));
  EXPECT_EQ(root.Reports(v1::FoldReport::FAILED)[0].input(), 1u);
  EXPECT_EQ(root.Reports(v1::FoldReport::FAILED)[0].code(),
            static_cast<int>(absl::StatusCode::kAborted));
  a.Shard(FoldOf(target_, Version(1), kBytes).Source(Source(1), grant.generation));
  a.Write(grant, bytes, kBytes);
  CommitAndExpect(root, 3, SumOf({1, 2}, kCount));
  EXPECT_EQ(root.plane().plane().stats().bytes_received, kBytes) << "no byte twice";
}

TEST_F(ReducerTest, ADeadSourceIsReportedAndTriedAgain) {
  ReduceNode& root = world_.Add("root");
  const object_store::WriteGrant grant = root.Create(Source(1), kBytes);
  const Generation g2 = root.Put(Source(2), Numbers(2, kCount));
  root.Shard(FoldOf(target_, Version(3), kBytes)
                 .Source(Source(2), g2)
                 .Source(Source(1), grant.generation)
                 .Root({Source(2), Source(1)}));
  root.Write(grant, Numbers(1, kCount), 1000);
  world_.RunFor(absl::Milliseconds(1));
  root.Abort(grant);
  ASSERT_TRUE(world_.RunUntil([&] { return !root.Reports(v1::FoldReport::FAILED).empty(); }));
  EXPECT_EQ(root.Reports(v1::FoldReport::FAILED)[0].input(), 1u);
  world_.RunFor(absl::Seconds(1));
  const size_t reports = root.Reports(v1::FoldReport::FAILED).size();
  EXPECT_GE(reports, 4u) << "tried again";
  EXPECT_LE(reports, 10u) << "with patience";
  DropAll({{&root, 3}});
  ExpectHoldsOnly(root, kBytes);
}

TEST_F(ReducerTest, ADropInTheMiddleGivesEverythingBack) {
  ReduceNode& a = world_.Add("a");
  ReduceNode& b = world_.Add("b");
  ReduceNode& root = world_.Add("root");
  const object_store::WriteGrant grant = a.Create(Source(1), kBytes);
  a.Shard(FoldOf(target_, Version(1), kBytes).Source(Source(1), grant.generation));
  a.Write(grant, Numbers(1, kCount), kBytes / 2);
  PlaceLeaf(b, 2, 2);
  const Generation g3 = root.Put(Source(3), Numbers(3, kCount));
  root.Shard(FoldOf(target_, Version(3), kBytes)
                 .Slot(a, Version(1))
                 .Source(Source(3), g3)
                 .Slot(b, Version(2))
                 .Root({Source(1), Source(3), Source(2)}));
  ASSERT_TRUE(world_.RunUntil([&] { return root.Published(target_).size() == kBytes / 2; }));
  DropAll({{&root, 3}, {&a, 1}, {&b, 2}});
  EXPECT_FALSE(root.Copy(target_)) << "withdrawn";
  EXPECT_TRUE(std::any_of(root.sent().begin(), root.sent().end(),
                          [](const auto& sent) { return sent.message.has_withdraw(); }));
  ExpectHoldsOnly(root, kBytes);
  ExpectHoldsOnly(b, kBytes);
  EXPECT_EQ(a.reducer().stats().folds, 0u);
  EXPECT_EQ(root.plane().plane().stats().pulls_active, 0);
  EXPECT_EQ(a.plane().plane().stats().pushes_active, 0);
}

// New pages would take longer than the end of the fold that has some.
TEST_F(ReducerTest, AFoldThatReplacesAnotherTakesItsMemory) {
  ReduceNode& a = world_.Add("a");
  ReduceNode& b = world_.Add("b");
  const object_store::WriteGrant grant = a.Create(Source(1), kBytes);
  a.Shard(FoldOf(target_, Version(1), kBytes).Source(Source(1), grant.generation));
  a.Write(grant, Numbers(1, kCount), kBytes / 2);
  const Generation g = b.Put(Source(2), Numbers(2, kCount));
  const auto order = [&](int version) {
    return FoldOf(target_, Version(version), kBytes).Slot(a, Version(1)).Source(Source(2), g);
  };
  b.Shard(order(2));
  const auto receives = [&b] { return b.plane().plane().stats().pulls_active == 1; };
  ASSERT_TRUE(world_.RunUntil(receives));
  const uint64_t before = b.memory().stats().allocated_bytes;
  uint64_t most = 0;
  const auto look = [&] {
    most = std::max(most, b.memory().stats().allocated_bytes);
    return false;
  };
  b.Run([&] {
    b.channel().OnMessage(0, DropOf(target_, Version(2)));
    b.channel().OnMessage(0, order(3));
    b.channel().OnMessage(0, DropOf(target_, Version(3)));
    b.channel().OnMessage(0, order(4));
  });
  EXPECT_FALSE(world_.RunUntil(look, absl::Milliseconds(100)));
  EXPECT_TRUE(receives());
  EXPECT_EQ(most, before);
  EXPECT_EQ(b.reducer().stats().folds, 1u);
  DropAll({{&b, 4}, {&a, 1}});
  ExpectHoldsOnly(b, kBytes);
}

TEST_F(ReducerTest, ARootThatLosesAgainstAnotherGenerationEnds) {
  ReduceNode& root = world_.Add("root");
  const Generation g = root.Put(Source(1), Numbers(1, kCount));
  root.Shard(FoldOf(target_, Version(1), kBytes).Source(Source(1), g).Root({Source(1)}));
  ASSERT_TRUE(Ready(root));
  v1::ShardMessage message;
  v1::Verdict& verdict = *message.mutable_verdict();
  object_store::SetSubject(target_, root.Copy(target_)->generation, &verdict);
  verdict.set_kind(v1::Verdict::SUPERSEDED);
  directory::ToProto(Generation{{77, 1}, 5}, verdict.mutable_adopted());
  verdict.mutable_info()->set_size_bytes(kBytes);
  root.Shard(message);
  ASSERT_TRUE(world_.RunUntil([&] { return !root.Reports(v1::FoldReport::DROPPED).empty(); }));
  root.Shard(CommitOf(target_, Version(1)));
  world_.RunFor(absl::Milliseconds(10));
  ExpectHoldsOnly(root, kBytes);
}

TEST_F(ReducerTest, AFoldThatNeverFitsIsRefusedAtOnceAndOneWithoutRoomLater) {
  ReduceWorld::Options options;
  options.capacity = 3 * kBytes;
  options.reducer.memory_patience = absl::Milliseconds(300);
  ReduceNode& a = world_.Add("a", options);
  const Generation g1 = a.Put(Source(1), Numbers(1, kCount));
  const Generation g2 = a.Put(Source(2), Numbers(2, kCount));
  ReduceNode& b = world_.Add("b");
  FoldOf large(target_, Version(1), kBytes);
  for (int n = 0; n < 5; ++n) large.Slot(b, Version(10 + n));
  a.Shard(large);
  world_.RunFor(absl::Milliseconds(1));
  EXPECT_EQ(a.Reports(v1::FoldReport::NO_MEMORY).size(), 1u);
  // One source's worth is free; the root needs one, and its second child another.
  a.Shard(FoldOf(target_, Version(2), kBytes)
              .Slot(b, Version(1))
              .Source(Source(1), g1)
              .Slot(b, Version(2))
              .Root({Source(1)}));
  world_.RunFor(absl::Milliseconds(200));
  EXPECT_EQ(a.Reports(v1::FoldReport::NO_MEMORY).size(), 1u);
  EXPECT_EQ(a.store().stats().pins, 0u) << "nothing is held while memory is waited for";
  EXPECT_EQ(a.store().stats().used_bytes, 2 * kBytes);
  world_.RunFor(absl::Milliseconds(200));
  EXPECT_EQ(a.Reports(v1::FoldReport::NO_MEMORY).size(), 2u);
  // This one fits.
  a.Shard(FoldOf(target_, Version(3), kBytes).Source(Source(1), g1).Source(Source(2), g2));
  world_.RunFor(absl::Milliseconds(10));
  EXPECT_EQ(a.reducer().stats().folds_done, 1u);
  DropAll({{&a, 3}});
  ExpectHoldsOnly(a, 2 * kBytes);
}

TEST_F(ReducerTest, MemoryThatComesInTimeIsUsed) {
  ReduceWorld::Options options;
  options.capacity = 3 * kBytes - 1;
  ReduceNode& a = world_.Add("a", options);
  const object_store::WriteGrant passing = a.Create(Source(9), kBytes);
  const Generation g1 = a.Put(Source(1), Numbers(1, kCount));
  a.Shard(FoldOf(target_, Version(3), kBytes).Source(Source(1), g1).Inline(Numbers(2, kCount)));
  world_.RunFor(absl::Milliseconds(300));
  EXPECT_EQ(a.reducer().stats().folds_done, 0u);
  a.Abort(passing);
  world_.RunFor(absl::Milliseconds(10));
  EXPECT_EQ(a.reducer().stats().folds_done, 1u);
}

TEST_F(ReducerTest, OrdersThatMakeNoSenseAreTurnedDown) {
  ReduceNode& a = world_.Add("a");
  const Generation g = a.Put(Source(1), Numbers(1, kCount));
  const auto good = [&] {
    return FoldOf(target_, Version(1), kBytes).Source(Source(1), g).Inline(Numbers(2, kCount));
  };
  std::vector<std::function<void(v1::Fold&)>> spoil = {
      [](v1::Fold& f) { f.set_dtype(99); },
      [](v1::Fold& f) { f.set_dtype(directory::kSeveralDTypes); },
      [](v1::Fold& f) { f.add_runs()->set_end(kBytes); },
      [](v1::Fold& f) {
        f.set_dtype(directory::kSeveralDTypes);
        f.add_runs()->set_end(kBytes);
        f.mutable_runs(0)->set_dtype(99);
      },
      [](v1::Fold& f) {
        f.set_dtype(directory::kSeveralDTypes);
        f.add_runs()->set_end(60);
        f.add_runs()->set_end(kBytes);
      },
      [](v1::Fold& f) {
        f.set_dtype(directory::kSeveralDTypes);
        for (uint64_t i = 1; i <= kMaxElementRuns + 1; ++i) f.add_runs()->set_end(64 * i);
      },
      [](v1::Fold& f) { f.set_op(99); },
      [](v1::Fold& f) { f.set_op(static_cast<uint32_t>(ReduceOp::kMean)); },
      [](v1::Fold& f) { f.clear_inputs(); },
      [](v1::Fold& f) { f.set_size_bytes(kBytes - 1); },
      [](v1::Fold& f) { f.set_size_bytes(kBytes + 4); },
      [](v1::Fold& f) { f.set_size_bytes(UINT64_MAX - 3); },
      [](v1::Fold& f) { f.set_range_offset(UINT64_MAX); },
      [](v1::Fold& f) { f.set_range_offset(4); },
      [](v1::Fold& f) { f.set_planned(0); },
      [](v1::Fold& f) { f.set_begin(kBytes + 1); },
      [](v1::Fold& f) { f.set_root(true); },
      [](v1::Fold& f) { f.set_root(true), f.set_reduced_from("short"); },
      [](v1::Fold& f) {
        f.set_root(true), f.set_reduced_from(object_store::IdBytes(Source(1)));
        f.set_metadata(std::string(kMaxMetadataBytes + 1, 'm'));
      },
      [](v1::Fold& f) { f.mutable_inputs(0)->clear_source_id(); },
      [](v1::Fold& f) { f.mutable_inputs(0)->set_source_id("short"); },
      [](v1::Fold& f) { f.mutable_inputs(0)->clear_generation(); },
      [](v1::Fold& f) { f.mutable_inputs(0)->mutable_sender()->set_node(3); },
      [](v1::Fold& f) { f.mutable_inputs(1)->mutable_sender()->set_node(3); },
  };
  for (size_t i = 0; i < spoil.size(); ++i) {
    SCOPED_TRACE(i);
    a.sent().clear();
    v1::ShardMessage message = good();
    spoil[i](*message.mutable_fold());
    a.Shard(message);
    world_.RunFor(absl::Milliseconds(10));
    const auto dropped = a.Reports(v1::FoldReport::DROPPED);
    ASSERT_EQ(dropped.size(), 1u);
    EXPECT_EQ(dropped[0].code(), static_cast<int>(absl::StatusCode::kInvalidArgument));
    EXPECT_FALSE(dropped[0].message().empty());
    ExpectHoldsOnly(a, kBytes);
  }
  // Without a target or a version there is nothing to answer about.
  a.sent().clear();
  v1::ShardMessage nobody = good();
  nobody.mutable_fold()->clear_object_id();
  a.Shard(nobody);
  nobody = good();
  nobody.mutable_fold()->clear_version();
  a.Shard(nobody);
  EXPECT_TRUE(a.sent().empty());
}

TEST_F(ReducerTest, DuplicatesAndLatecomersChangeNothing) {
  ReduceNode& a = world_.Add("a");
  ReduceNode& root = world_.Add("root");
  PlaceLeaf(a, 1, 1);
  const Generation g2 = root.Put(Source(2), Numbers(2, kCount));
  const v1::ShardMessage fold = FoldOf(target_, Version(2), kBytes)
                                    .Slot(a, Version(1))
                                    .Source(Source(2), g2)
                                    .Root({Source(1), Source(2)});
  root.Shard(DropOf(target_, Version(2)));
  root.Shard(CommitOf(target_, Version(2)));
  root.Shard(fold);
  root.Shard(fold);
  ASSERT_TRUE(Ready(root));
  root.Shard(fold);
  EXPECT_EQ(root.Reports(v1::FoldReport::READY).size(), 2u) << "the first may have been lost";
  CommitAndExpect(root, 2, SumOf({1, 2}, kCount));
  root.Shard(CommitOf(target_, Version(2)));
  root.Shard(fold);
  root.Shard(DropOf(target_, Version(2)));
  root.Shard(DropOf(target_, Version(2)));
  root.Shard(CommitOf(target_, Version(2)));
  world_.RunFor(absl::Milliseconds(10));
  EXPECT_EQ(root.Published(target_), SumOf({1, 2}, kCount)) << "the result stays";
  ExpectHoldsOnly(root, 2 * kBytes + 2 * ObjectId::kSize);
  EXPECT_EQ(root.plane().plane().stats().bytes_received, kBytes);
}

}  // namespace
}  // namespace phalanx::collectives
