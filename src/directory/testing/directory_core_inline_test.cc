// The choice between sending an object's bytes from the shard and naming a sender.
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "src/directory/testing/directory_core_harness.h"

namespace phalanx::directory {
namespace {

using testing::Harness;
using testing::Id;

const ObjectId x = Id("x");

DirectoryOptions SmallLimits() {
  DirectoryOptions options;
  options.inline_under_way_bytes = 1000;
  options.inline_burst_bytes = 1000;
  return options;
}

int Delivered(Harness& h, const NodeKey& node) { return h.Count(node, v1::ShardMessage::kDeliver); }

std::vector<NodeKey> UpMany(Harness& h, int count) {
  std::vector<NodeKey> nodes;
  for (int i = 0; i < count; ++i) nodes.push_back(h.Up("r" + std::to_string(i)));
  return nodes;
}

TEST(DirectoryCoreInlineTest, ASenderIsNamedWhileTooManyBytesAreUnderWay) {
  Harness h(/*learning=*/false, SmallLimits());
  const NodeKey a = h.Up("a");
  const auto nodes = UpMany(h, 3);
  h.Create(a, x, {.inline_bytes = std::string(600, 'x')});
  h.Want(nodes[0], x);
  EXPECT_EQ(Delivered(h, nodes[0]), 1);

  h.core().NoteUnderWay(600);
  h.Want(nodes[1], x);
  EXPECT_EQ(Delivered(h, nodes[1]), 0);
  EXPECT_TRUE(h.SenderOf(nodes[1], x).valid());

  h.core().NoteUnderWay(0);
  h.Want(nodes[2], x);
  EXPECT_EQ(Delivered(h, nodes[2]), 1);
}

TEST(DirectoryCoreInlineTest, AFailedPullOfASmallObjectIsAnsweredWithItsBytes) {
  Harness h(/*learning=*/false, SmallLimits());
  const NodeKey a = h.Up("a");
  const NodeKey b = h.Up("b");
  h.Create(a, x, {.inline_bytes = std::string(600, 'x')});
  h.core().NoteUnderWay(600);
  h.Want(b, x);
  ASSERT_EQ(h.SenderOf(b, x), a);
  h.Fail(b, x);
  EXPECT_EQ(Delivered(h, b), 1) << "nobody else has it, and it is with the shard";
}

// The shard has the bytes only for a moment after the last node that had them has gone.
TEST(DirectoryCoreInlineTest, WithoutASenderTheBytesAreSentWhateverIsUnderWay) {
  Harness h(/*learning=*/false, SmallLimits());
  const NodeKey a = h.Up("a");
  const NodeKey b = h.Up("b");
  h.Create(a, x, {.inline_bytes = std::string(600, 'x')});
  h.Connected(a, false);
  h.core().NoteUnderWay(1'000'000);
  h.Want(b, x);
  EXPECT_EQ(Delivered(h, b), 1);
}

// One measured link of 1 MB/s, which the core also assumes for the shard's own link. Seven times
// 60,000 bytes would take 0.42 s, so the creator and the served nodes serve the rest.
TEST(DirectoryCoreInlineTest, ManyWaitingNodesServeEachOtherWhereThatIsSooner) {
  Harness h;
  const NodeKey a = h.Up("a");
  const auto nodes = UpMany(h, 7);
  h.Create(a, Id("probe"), {.complete = true});
  h.Want(nodes[0], Id("probe"));
  v1::PullReport report = h.ReportOf(nodes[0], Id("probe"), true);
  report.set_bytes_per_second(1e6);
  report.set_first_byte_ns(1'000'000);
  h.Report(nodes[0], report);

  for (const NodeKey& node : nodes) h.Want(node, x);
  h.Create(a, x, {.inline_bytes = std::string(60'000, 'x')});
  int delivered = 0, assigned = 0;
  for (const NodeKey& node : nodes) {
    delivered += Delivered(h, node);
    assigned += h.SenderOf(node, x).valid() ? 1 : 0;
  }
  EXPECT_EQ(delivered + assigned, 7);
  EXPECT_GE(delivered, 2);
  EXPECT_GE(assigned, 3);
}

// Without measurements the core assumes links of 1 Gbit/s: 23 times 60,000 bytes take 11 ms.
TEST(DirectoryCoreInlineTest, WithNothingMeasuredFewAreSentTheBytesAndManyServeEachOther) {
  for (const int count : {5, 23}) {
    Harness h;
    const NodeKey a = h.Up("a");
    const auto nodes = UpMany(h, count);
    for (const NodeKey& node : nodes) h.Want(node, x);
    h.Create(a, x, {.inline_bytes = std::string(60'000, 'x')});
    int delivered = 0;
    for (const NodeKey& node : nodes) {
      delivered += Delivered(h, node);
      EXPECT_NE(Delivered(h, node) > 0, h.SenderOf(node, x).valid());
    }
    EXPECT_GE(delivered, 3);
    EXPECT_LE(delivered, 5);
  }
}

TEST(DirectoryCoreInlineTest, WithNothingMeasuredTheShardDeliversAFewBytesToEveryNode) {
  Harness h;
  const NodeKey a = h.Up("a");
  const auto nodes = UpMany(h, 100);
  for (const NodeKey& node : nodes) h.Want(node, x);
  h.Create(a, x, {.inline_bytes = std::string(1000, 'x')});
  for (const NodeKey& node : nodes) EXPECT_EQ(Delivered(h, node), 1);
}

// The messages of a node whose clients call many Gets at once: all in one turn of the shard.
struct Crowd {
  int delivered = 0;
  int assigned = 0;
};
Crowd AskForMany(Harness& h, size_t size, int objects) {
  const NodeKey a = h.Up("a");
  const NodeKey b = h.Up("b");
  h.CheckEvery(100'000);
  const auto name = [](int i) { return Id("many" + std::to_string(i)); };
  for (int i = 0; i < objects; ++i) h.Create(a, name(i), {.inline_bytes = std::string(size, 'x')});
  v1::NodeMessage message;
  v1::Want& want = *message.mutable_want();
  for (int i = 0; i < objects; ++i) {
    want.set_number(static_cast<uint64_t>(i + 1));
    want.set_object_id(std::string(name(i).binary()));
    EXPECT_TRUE(h.core().OnMessage(b, message, h.now()).ok());
  }
  h.CheckEvery(1);
  h.Advance(absl::ZeroDuration());
  return {Delivered(h, b), h.Count(b, v1::ShardMessage::kAssign)};
}

TEST(DirectoryCoreInlineTest, ManySmallObjectsAskedForAtOnceAreAllSentByTheShard) {
  Harness h;
  const Crowd crowd = AskForMany(h, 1024, 4000);
  EXPECT_EQ(crowd.delivered, 4000) << "a pull costs the shard more than the bytes do";
  EXPECT_EQ(crowd.assigned, 0);
}

// Each object takes 33 us of the shard's link, and a pull 100 us of both nodes. A pull is worth it
// only after 1 ms of queued bytes, and from then on for one object in seven.
TEST(DirectoryCoreInlineTest, PullsOfManyObjectsAreCountedAsOneAfterAnother) {
  Harness h;
  const Crowd crowd = AskForMany(h, 4096, 1000);
  EXPECT_EQ(crowd.delivered + crowd.assigned, 1000);
  EXPECT_GT(crowd.assigned, 100);
  EXPECT_LT(crowd.assigned, 150);
}

}  // namespace
}  // namespace phalanx::directory
