// The claims of the Hoplite paper (Zhuang et al., "Hoplite: Efficient and Fault-Tolerant Collective
// Communication for Task-Based Distributed Systems", SIGCOMM 2021) about its directory and its
// broadcast, one test each. Sections as in the paper.
#include <set>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "src/directory/testing/directory_core_harness.h"

namespace phalanx::directory {
namespace {

using ::testing::AnyOf;
using testing::Assignment;
using testing::Harness;
using testing::Id;

constexpr uint64_t kLarge = uint64_t{1} << 30;
const ObjectId x = Id("x");

std::vector<NodeKey> UpMany(Harness& h, int count, const std::string& prefix = "r") {
  std::vector<NodeKey> nodes;
  for (int i = 0; i < count; ++i) nodes.push_back(h.Up(prefix + std::to_string(i)));
  return nodes;
}

// Section 3.2 (4.1 in its implementation): the directory holds the size, and the location of each
// copy.
TEST(BroadcastPaperTest, Section3TheDirectoryKnowsSizeAndLocationOfEveryCopy) {
  Harness h;
  const NodeKey a = h.Up("a");
  const NodeKey b = h.Up("b");
  h.Create(a, x, {.size = kLarge, .complete = true});
  h.Want(b, x);
  const v1::DescribeObjectResponse described = h.Describe(x);
  EXPECT_EQ(described.summary().info().size_bytes(), kLarge);
  ASSERT_EQ(described.copies_size(), 2);
  EXPECT_EQ(described.copies(0).name(), "a");
  EXPECT_TRUE(described.copies(0).complete());
  EXPECT_EQ(described.copies(1).name(), "b");
  EXPECT_FALSE(described.copies(1).complete());
  EXPECT_EQ(described.copies(1).sender_name(), "a");
}

// Section 3.2: a node publishes a location when creation starts and again when the object is
// complete, so that a partial copy serves.
TEST(BroadcastPaperTest, Section3APartialCopyServesBeforeItIsComplete) {
  Harness h;
  const NodeKey a = h.Up("a");
  const NodeKey b = h.Up("b");
  h.Create(a, x, {.size = kLarge, .complete = false});
  h.Want(b, x);
  EXPECT_EQ(h.SenderOf(b, x), a);
}

// Section 3.2: objects of less than 64 KB are cached in the directory itself; a query returns them
// at once.
TEST(BroadcastPaperTest, Section3ASmallObjectComesWithTheAnswerInOneRoundTrip) {
  Harness h;
  const NodeKey a = h.Up("a");
  const NodeKey b = h.Up("b");
  const std::string bytes(65536, 's');
  h.Create(a, x, {.inline_bytes = bytes});
  h.Clear();
  h.Want(b, x);
  ASSERT_EQ(h.messages(), 1u);
  EXPECT_EQ(h.Last(b, v1::ShardMessage::kDeliver)->deliver().inline_bytes(), bytes);
}

// Section 3.2: if an object does not exist yet, the directory answers the query when it does.
TEST(BroadcastPaperTest, Section3AQueryForAnObjectThatDoesNotExistYetWaits) {
  Harness h;
  const NodeKey a = h.Up("a");
  const NodeKey b = h.Up("b");
  h.Want(b, x);
  EXPECT_EQ(h.LastAssign(b, x), std::nullopt);
  h.Create(a, x, {.size = kLarge});
  EXPECT_EQ(h.SenderOf(b, x), a);
}

// Section 3.3 (broadcast): complete copies are preferred over partial ones.
TEST(BroadcastPaperTest, Section4CompleteCopiesArePreferred) {
  Harness h;
  const NodeKey a = h.Up("a");
  const auto r = UpMany(h, 3);
  h.Create(a, x, {.size = kLarge, .complete = true});
  h.Want(r[0], x);
  h.Finish(r[0], x);
  h.Want(r[1], x);  // takes one of the two complete copies
  h.Want(r[2], x);  // the other one, not the partial copy
  EXPECT_THAT(h.SenderOf(r[1], x), AnyOf(a, r[0]));
  EXPECT_THAT(h.SenderOf(r[2], x), AnyOf(a, r[0]));
  EXPECT_NE(h.SenderOf(r[1], x), h.SenderOf(r[2], x));
}

// Section 3.3: the directory removes a location from the list when it assigns it, so that a sender
// serves one receiver at a time.
TEST(BroadcastPaperTest, Section4ASenderServesOneReceiverAtATime) {
  Harness h;
  const NodeKey a = h.Up("a");
  h.Create(a, x, {.size = kLarge, .complete = true});
  std::set<NodeKey> senders;
  for (const NodeKey& r : UpMany(h, 30)) {
    h.Want(r, x);
    EXPECT_TRUE(senders.insert(h.SenderOf(r, x)).second) << "somebody has two receivers";
  }
}

// Section 3.3: the directory adds a receiver to the list as a partial copy at once, so that the
// next receiver can pull from it.
TEST(BroadcastPaperTest, Section4AReceiverIsListedAtOnceAndServesTheNext) {
  Harness h;
  const NodeKey a = h.Up("a");
  const auto r = UpMany(h, 2);
  h.Create(a, x, {.size = kLarge, .complete = true});
  h.Want(r[0], x);
  h.Want(r[1], x);
  EXPECT_EQ(h.SenderOf(r[0], x), a);
  EXPECT_EQ(h.SenderOf(r[1], x), r[0]) << "before it has a single byte";
}

// Section 3.3: when a receiver has finished, the directory lists its sender again and counts the
// receiver as complete.
TEST(BroadcastPaperTest, Section4AFinishedReceiverFreesItsSenderAndIsAnother) {
  Harness h;
  const NodeKey a = h.Up("a");
  const auto r = UpMany(h, 3);
  h.Create(a, x, {.size = kLarge, .complete = true});
  h.Want(r[0], x);
  h.Finish(r[0], x);
  std::set<NodeKey> senders;
  for (int i = 1; i < 3; ++i) {
    h.Want(r[i], x);
    senders.insert(h.SenderOf(r[i], x));
  }
  EXPECT_EQ(senders, (std::set<NodeKey>{a, r[0]}));
}

// Section 3.3 and figure 4: receivers that arrive while no other has finished form a chain; later
// ones spread over the complete copies.
TEST(BroadcastPaperTest, Section4LateReceiversSpreadOverCompleteCopies) {
  Harness h;
  const NodeKey a = h.Up("a");
  const auto early = UpMany(h, 4, "early");
  const auto late = UpMany(h, 4, "late");
  h.Create(a, x, {.size = kLarge, .complete = true});
  NodeKey before = a;
  for (const NodeKey& r : early) {
    h.Want(r, x);
    EXPECT_EQ(h.SenderOf(r, x), before);
    before = r;
  }
  for (const NodeKey& r : early) h.Finish(r, x);
  std::set<NodeKey> senders;
  for (const NodeKey& r : late) {
    h.Want(r, x);
    EXPECT_FALSE(std::count(late.begin(), late.end(), h.SenderOf(r, x)));
    senders.insert(h.SenderOf(r, x));
  }
  EXPECT_EQ(senders.size(), 4u) << "five complete copies, four receivers, none shared";
}

// Section 3.5 (fault tolerance of broadcast): a receiver whose sender failed requests another one
// and gets it.
TEST(BroadcastPaperTest, Section5AFailedSenderIsReplaced) {
  Harness h;
  const NodeKey a = h.Up("a");
  const auto r = UpMany(h, 2);
  h.Create(a, x, {.size = kLarge, .complete = true});
  h.Want(r[0], x);
  h.Want(r[1], x);
  ASSERT_EQ(h.SenderOf(r[1], x), r[0]);
  h.Down(r[0]);
  EXPECT_EQ(h.SenderOf(r[1], x), a) << "the dead relay's place is free at once";
}

// Section 3.5: only missing bytes are sent again. The Assign names the same generation; the
// receiver continues at its watermark.
TEST(BroadcastPaperTest, Section5TheNewSenderContinuesTheSameGeneration) {
  Harness h;
  const NodeKey a = h.Up("a");
  const auto r = UpMany(h, 2);
  const Generation g = h.Create(a, x, {.size = kLarge, .complete = true});
  h.Want(r[0], x);
  h.Want(r[1], x);
  h.Progress(r[1], x, kLarge / 2, 1e9);
  const Assignment before = *h.LastAssign(r[1], x);
  h.Down(r[0]);
  const Assignment after = *h.LastAssign(r[1], x);
  EXPECT_EQ(after.generation, g);
  EXPECT_GT(after.plan, before.plan);
  EXPECT_EQ(h.Describe(x).copies(1).watermarks(0), kLarge / 2) << "what it had still counts";
}

// Section 3.5: a sender that depends on the receiver is never chosen.
TEST(BroadcastPaperTest, Section5NoNodeDownstreamOfTheReceiverIsChosen) {
  Harness h;
  const NodeKey a = h.Up("a");
  const auto r = UpMany(h, 4);
  h.Create(a, x, {.size = kLarge, .complete = true});
  for (const NodeKey& node : r) h.Want(node, x);
  // r0 loses its connection to a. All other receivers are downstream of r0: it must wait for a, not
  // pull from its own receivers.
  h.Fail(r[0], x);
  EXPECT_EQ(h.SenderOf(r[0], x), a);
  h.Advance(absl::Milliseconds(20));
  EXPECT_EQ(h.SenderOf(r[0], x), a);
  for (int i = 1; i < 4; ++i) EXPECT_EQ(h.SenderOf(r[i], x), r[i - 1]) << "their pulls go on";
  // The connection stays broken: now r0's receiver has the sender, and r0 is no longer upstream of
  // the others.
  h.Fail(r[0], x);
  EXPECT_EQ(h.SenderOf(r[1], x), a);
  h.Advance(absl::Milliseconds(20));
  EXPECT_NE(h.SenderOf(r[0], x), a);
}

// Section 3.5: if no copy is left, the receivers wait until the object is put again (by
// re-executing its task).
TEST(BroadcastPaperTest, Section5WithoutACopyReceiversWaitForTheObjectToBePutAgain) {
  Harness h;
  const NodeKey a = h.Up("a");
  const NodeKey b = h.Up("b");
  const NodeKey c = h.Up("c");
  h.Create(a, x, {.size = kLarge, .complete = true});
  h.Want(b, x);
  h.Fail(b, x);
  h.Down(a);
  EXPECT_EQ(h.LastGone(b), v1::Gone::LOST);
  const Generation again = h.Create(c, x, {.size = kLarge, .complete = true});
  EXPECT_EQ(h.SenderOf(b, x), c);
  EXPECT_EQ(h.LastAssign(b, x)->generation, again);
}

// Section 3.5: a restarted node joins with an ordinary query.
TEST(BroadcastPaperTest, Section5ARestartedNodeJoinsByAskingAgain) {
  Harness h;
  const NodeKey a = h.Up("a");
  const auto r = UpMany(h, 2);
  h.Create(a, x, {.size = kLarge, .complete = true});
  h.Want(r[0], x);
  h.Want(r[1], x);
  h.Down(r[0]);
  const NodeKey again = h.Up("r0");
  h.Want(again, x);
  EXPECT_EQ(h.SenderOf(again, x), r[1]) << "at the end of the chain";
}

// Section 3.2 (API): Delete removes every copy, and a later query returns an error.
TEST(BroadcastPaperTest, Section3DeleteRemovesEveryCopy) {
  Harness h;
  const NodeKey a = h.Up("a");
  const auto r = UpMany(h, 3);
  h.Create(a, x, {.size = kLarge, .complete = true});
  h.Want(r[0], x);
  h.Finish(r[0], x);
  h.Want(r[1], x);
  h.Delete(r[0], x);
  for (const NodeKey& node : {a, r[0], r[1]}) EXPECT_EQ(h.LastGone(node), v1::Gone::DELETED);
  EXPECT_EQ(h.Describe(x).copies_size(), 0);
  h.Want(r[2], x);
  EXPECT_EQ(h.LastGone(r[2]), v1::Gone::DELETED);
}

}  // namespace
}  // namespace phalanx::directory
