#include "src/cli/views/tree_drawing.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

namespace phalanx::runtime {
namespace {

constexpr uint64_t kSize = 64 << 20;

v1::DescribeObjectResponse Object() {
  v1::DescribeObjectResponse object;
  v1::ObjectSummary& summary = *object.mutable_summary();
  summary.set_object_id(std::string(20, '\x5a'));
  summary.mutable_generation()->mutable_creator()->set_node(uint64_t{0x9f2c0011} << 32);
  summary.mutable_generation()->mutable_creator()->set_incarnation(0x5d1e);
  summary.mutable_generation()->set_sequence(3);
  summary.mutable_info()->set_size_bytes(kSize);
  summary.mutable_info()->set_slices(1);
  return object;
}

// Adds node `number`, called n<number>, with the sender `sender` (0: a root).
v1::CopyDescription& AddCopy(v1::DescribeObjectResponse& object, uint64_t number, uint64_t sender) {
  v1::CopyDescription& copy = *object.add_copies();
  copy.mutable_node()->set_node(number);
  copy.set_name(absl::StrCat("n", number));
  copy.set_connected(true);
  if (sender != 0) {
    copy.mutable_sender()->set_node(sender);
    copy.set_sender_name(absl::StrCat("n", sender));
  }
  return copy;
}

v1::CopyDescription& AddComplete(v1::DescribeObjectResponse& object, uint64_t number,
                                 uint64_t sender) {
  v1::CopyDescription& copy = AddCopy(object, number, sender);
  copy.set_complete(true);
  object.mutable_summary()->set_complete_copies(object.summary().complete_copies() + 1);
  if (sender == 0) {
    copy.set_primary(true);
  } else {
    copy.set_bytes_received(kSize);
    copy.set_bytes_per_second(12.5e6);
    copy.set_elapsed_ns(5'370'000'000);
  }
  return copy;
}

v1::CopyDescription& AddPulling(v1::DescribeObjectResponse& object, uint64_t number,
                                uint64_t sender, uint64_t watermark) {
  v1::CopyDescription& copy = AddCopy(object, number, sender);
  copy.set_pulling(true);
  copy.add_watermarks(watermark);
  copy.set_bytes_received(watermark);
  copy.set_bytes_per_second(12.1e6);
  copy.set_elapsed_ns(1'000'000'000);
  object.mutable_summary()->set_partial_copies(object.summary().partial_copies() + 1);
  return copy;
}

v1::DescribeObjectResponse RunningBroadcast() {
  v1::DescribeObjectResponse object = Object();
  AddPulling(object, 4, 2, kSize / 2).set_repairs(1);
  AddComplete(object, 2, 1);
  AddPulling(object, 10, 3, kSize / 4).set_starved_ns(900'000'000);
  AddComplete(object, 1, 0);
  AddComplete(object, 3, 1);
  v1::NodeInfo& waiting = *object.add_waiting();
  waiting.mutable_key()->set_node(5);
  waiting.set_name("n5");
  object.mutable_summary()->set_waiting(1);
  return object;
}

TEST(TreeDrawingTest, DrawsARunningBroadcastAsATree) {
  EXPECT_EQ(DrawTree(RunningBroadcast(), true),
            "5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a  64.0 MiB  generation 9f2c0011.5d1e#3\n"
            "3 complete, 2 partial, 1 waiting\n"
            "\n"
            "n1         complete  ██████████ 100 %             primary\n"
            "├─ n2      complete  ██████████ 100 %  12.5 MB/s  in 5.37 s\n"
            "│  └─ n4   pulling   █████       50 %  12.1 MB/s  repaired once\n"
            "└─ n3      complete  ██████████ 100 %  12.5 MB/s  in 5.37 s\n"
            "   └─ n10  starved   ██▌         25 %  12.1 MB/s\n"
            "n5         waiting\n");
}

TEST(TreeDrawingTest, DrawsWithAsciiOnly) {
  EXPECT_EQ(DrawTree(RunningBroadcast(), false),
            "5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a  64.0 MiB  generation 9f2c0011.5d1e#3\n"
            "3 complete, 2 partial, 1 waiting\n"
            "\n"
            "n1         complete  ========== 100 %             primary\n"
            "|- n2      complete  ========== 100 %  12.5 MB/s  in 5.37 s\n"
            "|  `- n4   pulling   =====>      50 %  12.1 MB/s  repaired once\n"
            "`- n3      complete  ========== 100 %  12.5 MB/s  in 5.37 s\n"
            "   `- n10  starved   ==>         25 %  12.1 MB/s\n"
            "n5         waiting\n");
}

TEST(TreeDrawingTest, RepairsAndBytesSentTwiceAreNoted) {
  v1::DescribeObjectResponse object = Object();
  v1::CopyDescription& copy = AddComplete(object, 2, 7);
  copy.set_repairs(3);
  copy.set_bytes_received(kSize + (1 << 20));
  EXPECT_EQ(DrawTree(object, true),
            "5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a  64.0 MiB  generation 9f2c0011.5d1e#3\n"
            "1 complete, 0 partial, 0 waiting\n"
            "\n"
            "n2  complete  ██████████ 100 %  12.5 MB/s  in 5.37 s, from n7, which has no copy now, "
            "repaired 3 times, 1.00 MiB sent twice\n");
}

TEST(TreeDrawingTest, ShowsTheNodesThatWaitForAnUnknownObject) {
  v1::DescribeObjectResponse object;
  object.mutable_summary()->set_object_id(std::string(20, '\1'));
  object.mutable_summary()->set_waiting(2);
  object.add_waiting()->set_name("n10");
  object.mutable_waiting(0)->mutable_key()->set_node(10);
  object.add_waiting()->set_name("n9");
  object.mutable_waiting(1)->mutable_key()->set_node(9);
  EXPECT_EQ(DrawTree(object, true),
            "0101010101010101010101010101010101010101  not put yet\n"
            "0 complete, 0 partial, 2 waiting\n"
            "\n"
            "n9   waiting\n"
            "n10  waiting\n");
}

TEST(TreeDrawingTest, ShowsThatAnObjectIsDeleted) {
  v1::DescribeObjectResponse object;
  object.mutable_summary()->set_object_id(std::string(20, '\1'));
  object.mutable_summary()->set_deleted(true);
  EXPECT_EQ(DrawTree(object, true),
            "0101010101010101010101010101010101010101  deleted\n"
            "0 complete, 0 partial, 0 waiting\n");
}

TEST(TreeDrawingTest, NamesEveryState) {
  v1::CopyDescription copy;
  EXPECT_EQ(CopyState(copy), "lost");
  copy.set_connected(true);
  EXPECT_EQ(CopyState(copy), "idle");
  copy.set_primary(true);
  EXPECT_EQ(CopyState(copy), "writing");
  copy.set_pulling(true);
  EXPECT_EQ(CopyState(copy), "pulling");
  copy.set_elapsed_ns(100);
  copy.set_starved_ns(50);
  EXPECT_EQ(CopyState(copy), "starved");
  copy.set_complete(true);
  EXPECT_EQ(CopyState(copy), "complete");
}

TEST(TreeDrawingTest, DrawsEveryCopyOnceEvenInACycle) {
  v1::DescribeObjectResponse object = Object();
  AddPulling(object, 1, 2, 0);
  AddPulling(object, 2, 3, 0);
  AddPulling(object, 3, 1, 0);
  AddPulling(object, 4, 4, 0);
  AddPulling(object, 4, 1, 0);  // a second entry for the same node
  const std::vector<TreeRow> rows = LayOutTree(object);
  ASSERT_EQ(rows.size(), 4u);
  EXPECT_TRUE(rows[0].sender_gone);
  EXPECT_EQ(rows[0].descendants, 2);
  EXPECT_TRUE(rows[3].sender_gone);
}

TEST(TreeDrawingTest, DescendantsAreCountedThroughAllLevels) {
  v1::DescribeObjectResponse object = RunningBroadcast();
  std::vector<int> descendants;
  for (const TreeRow& row : LayOutTree(object)) descendants.push_back(row.descendants);
  EXPECT_EQ(descendants, (std::vector<int>{4, 1, 0, 1, 0}));
}

TEST(TreeDrawingTest, AChainOfThousandsIsLaidOutWithoutRecursion) {
  v1::DescribeObjectResponse object = Object();
  for (uint64_t i = 1; i <= 3000; ++i) AddComplete(object, i, i - 1);
  const std::vector<TreeRow> rows = LayOutTree(object);
  ASSERT_EQ(rows.size(), 3000u);
  EXPECT_EQ(rows.front().descendants, 2999);
  EXPECT_EQ(rows.back().more_siblings.size(), 2999u);
}

TEST(TreeDrawingTest, LimitsWatermarksToTheSize) {
  v1::CopyDescription copy;
  copy.add_watermarks(UINT64_MAX);
  copy.add_watermarks(UINT64_MAX);
  EXPECT_EQ(BytesPresent(copy, 100), 100u);
  copy.set_bytes_received(130);
  EXPECT_EQ(BytesSentTwice(copy, 100), 30u);
}

TEST(TreeDrawingTest, CountsOmittedCopiesAndNodes) {
  v1::DescribeObjectResponse object = Object();
  AddComplete(object, 2, 7);
  object.set_copies_left_out(3);
  object.set_waiting_left_out(5);
  const std::string drawn = DrawTree(object, true);
  EXPECT_NE(drawn.find("not shown: 3 copies and 5 waiting nodes\n"), std::string::npos);
  EXPECT_NE(drawn.find("from n7\n"), std::string::npos) << "n7 may be one of those: " << drawn;
}

TEST(TreeDrawingTest, NamesCannotMoveTheCursor) {
  v1::DescribeObjectResponse object = Object();
  AddComplete(object, 1, 0).set_name("\x1b[2Jn1");
  EXPECT_EQ(DrawTree(object, true).find('\x1b'), std::string::npos);
}

}  // namespace
}  // namespace phalanx::runtime
