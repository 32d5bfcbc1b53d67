// Broadcasts as nodes see them: who is ordered to fetch, who is told what, and what outlives whom.
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "src/common/testing/status_matchers.h"
#include "src/directory/testing/broadcast_harness.h"

namespace phalanx::directory::testing {
namespace {

using ::phalanx::testing::StatusIs;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST_F(BroadcastTest, EndsWhenEachNodeHasIt) {
  const NodeKey a = h_.Up("a");
  const NodeKey b = h_.Up("b");
  const NodeKey c = h_.Up("c");
  h_.Create(a, x, {.complete = true});
  Ask(a, x, {"*"}, /*sticky=*/false);
  EXPECT_EQ(Orders(a), 0) << "it has the object";
  EXPECT_EQ(Orders(b), 1);
  EXPECT_EQ(Orders(c), 1);
  Fetch(b, x);
  EXPECT_EQ(Answers(a), 0);
  Fetch(c, x);
  ASSERT_EQ(Answers(a), 1);
  EXPECT_EQ(Answer(a).code(), 0);
  EXPECT_EQ(Answer(a).nodes(), 3u);
  EXPECT_EQ(Counter("broadcasts_waited_for"), 0u);
  const NodeKey d = h_.Up("d");
  EXPECT_EQ(Orders(d), 0) << "it was not sticky";
  EXPECT_EQ(h_.Count(b, Kind::kSticky), 0);
}

TEST_F(BroadcastTest, OnlyTheNamedNodesAreOrdered) {
  const NodeKey a = h_.Up("a");
  const NodeKey b = h_.Up("b");
  const NodeKey c = h_.Up("c");
  h_.Create(a, x, {.complete = true});
  Ask(c, x, {"b"}, /*sticky=*/false);
  EXPECT_EQ(Orders(b), 1);
  EXPECT_EQ(Orders(c), 0);
  Fetch(b, x);
  EXPECT_EQ(Answer(c).nodes(), 1u);
}

TEST_F(BroadcastTest, AnObjectThatIsStillWrittenIsSpread) {
  const NodeKey a = h_.Up("a");
  const NodeKey b = h_.Up("b");
  const Generation g = h_.Create(a, x);
  Ask(a, x, {"*"}, /*sticky=*/false);
  EXPECT_EQ(Orders(a), 0) << "it writes it";
  EXPECT_EQ(Orders(b), 1);
  h_.Want(b, x);
  EXPECT_EQ(h_.SenderOf(b, x), a);
  h_.Seal(a, x, g);
  h_.Finish(b, x);
  EXPECT_EQ(Answer(a).nodes(), 2u);
}

TEST_F(BroadcastTest, AnObjectThatWasNeverPutIsNotFound) {
  const NodeKey a = h_.Up("a");
  Ask(a, x, {"*"}, /*sticky=*/true);
  EXPECT_EQ(Answer(a).code(), static_cast<int>(absl::StatusCode::kNotFound));
  h_.Create(a, x, {.complete = true});
  h_.Delete(a, x);
  Ask(a, x, {"*"}, /*sticky=*/true);
  EXPECT_THAT(Answer(a).message(), HasSubstr("deleted"));
}

TEST_F(BroadcastTest, ANodeThatIsNotThereIsAnErrorUnlessItMayCome) {
  const NodeKey a = h_.Up("a");
  h_.Create(a, x, {.complete = true});
  Ask(a, x, {"a", "zed"}, /*sticky=*/false);
  EXPECT_EQ(Answer(a).code(), static_cast<int>(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(Answer(a).message(), HasSubstr("zed; there are a "));
  Ask(a, x, {"zed"}, /*sticky=*/true);
  EXPECT_EQ(Answer(a).code(), 0) << "nobody is left to wait for";
  EXPECT_EQ(Answer(a).nodes(), 0u);
  const NodeKey b = h_.Up("b");
  const NodeKey zed = h_.Up("zed");
  EXPECT_EQ(Orders(b), 0);
  EXPECT_EQ(Orders(zed), 1);
}

TEST_F(BroadcastTest, NodesThatComeLaterAreOrderedWhileItIsSticky) {
  const NodeKey a = h_.Up("a");
  h_.Create(a, x, {.complete = true});
  Ask(a, x, {"*"}, /*sticky=*/true);
  EXPECT_EQ(Answer(a).nodes(), 1u);
  const NodeKey b = h_.Up("b");
  EXPECT_EQ(Orders(b), 1);
  Fetch(b, x);
  EXPECT_THAT(MarkOf(b).nodes(), ElementsAre("*")) << "it is to tell it again";
  h_.Down(a);
  const NodeKey c = h_.Up("c");
  EXPECT_EQ(Orders(c), 1) << "though who asked is gone";
  Stop(b, x);
  EXPECT_EQ(Answer(b).code(), 0);
  EXPECT_FALSE(Sticky(x));
  EXPECT_EQ(Orders(h_.Up("d")), 0);
}

TEST_F(BroadcastTest, ItEndsWithTheObject) {
  const NodeKey a = h_.Up("a");
  const NodeKey b = h_.Up("b");
  h_.Create(a, x, {.complete = true});
  Ask(b, x, {"*"}, /*sticky=*/true);
  EXPECT_EQ(Answers(b), 0);
  h_.Delete(a, x);
  EXPECT_EQ(Answer(b).code(), static_cast<int>(absl::StatusCode::kNotFound));
  EXPECT_THAT(Answer(b).message(), HasSubstr("deleted"));
  EXPECT_EQ(Counter("sticky"), 0u);
  h_.Create(a, x, {.complete = true});
  EXPECT_EQ(Orders(h_.Up("c")), 0) << "what is put later under the id is another object";
}

TEST_F(BroadcastTest, ItEndsWithItsLastCopy) {
  const NodeKey a = h_.Up("a");
  const NodeKey b = h_.Up("b");
  h_.Create(a, x, {.complete = true});
  Ask(b, x, {"*"}, /*sticky=*/true);
  h_.Down(a);
  EXPECT_EQ(Answer(b).code(), static_cast<int>(absl::StatusCode::kDataLoss));
  EXPECT_EQ(Counter("sticky"), 0u);
}

TEST_F(BroadcastTest, AnObjectThatIsPutAgainIsSpreadAgain) {
  const NodeKey a = h_.Up("a");
  const NodeKey b = h_.Up("b");
  const NodeKey c = h_.Up("c");
  h_.Create(a, x);
  Ask(c, x, {"*"}, /*sticky=*/true);
  h_.Want(b, x);
  h_.Down(a);
  h_.Advance(2 * kLease);
  EXPECT_EQ(Answers(c), 0) << "one still waits for it";
  h_.Clear();
  h_.Create(c, x, {.complete = true});
  EXPECT_EQ(Orders(b), 1) << "it may have given up";
  EXPECT_TRUE(Sticky(x));
  EXPECT_THAT(MarkOf(c).nodes(), ElementsAre("*"));
  h_.Finish(b, x);
  EXPECT_EQ(Answer(c).nodes(), 2u);
}

TEST_F(BroadcastTest, ANodeThatIsGoneIsNotWaitedFor) {
  const NodeKey a = h_.Up("a");
  const NodeKey b = h_.Up("b");
  h_.Create(a, x, {.complete = true});
  Ask(a, x, {"*"}, /*sticky=*/false);
  h_.Down(b);
  EXPECT_EQ(Answer(a).code(), 0);
  EXPECT_EQ(Answer(a).nodes(), 1u);
}

TEST_F(BroadcastTest, ARefusingNodeIsNamedAndNotOrderedAgain) {
  const NodeKey a = h_.Up("a");
  const NodeKey b = h_.Up("b");
  h_.Create(a, x, {.complete = true});
  Ask(a, x, {"*"}, /*sticky=*/true);
  Refuse(b, x);
  EXPECT_EQ(Answer(a).code(), static_cast<int>(absl::StatusCode::kResourceExhausted));
  EXPECT_THAT(Answer(a).message(), HasSubstr("1 of 2 nodes have not taken it: b"));
  EXPECT_EQ(Progress(a, x).named_without_room(), 1u);
  h_.Up("c");
  h_.Advance(10 * kLease);
  EXPECT_EQ(Orders(b), 1);
  h_.NewSession(b, true);
  h_.RegisterEnd(b);
  EXPECT_EQ(Orders(b), 2) << "once for each of its sessions";
  Refuse(b, x);
  Ask(a, x, {"b"}, /*sticky=*/false);
  EXPECT_EQ(Orders(b), 3) << "and when somebody asks for it anew";
}

TEST_F(BroadcastTest, AnUnwantThatCrossedTheOrderIsNoRefusal) {
  const NodeKey a = h_.Up("a");
  const NodeKey b = h_.Up("b");
  h_.Create(a, x, {.complete = true});
  h_.Want(b, x);
  Ask(a, x, {"*"}, /*sticky=*/false);
  h_.Unwant(b, x);  // of a client there
  EXPECT_EQ(Answers(a), 0);
  Fetch(b, x);
  EXPECT_EQ(Answer(a).nodes(), 2u);
}

TEST_F(BroadcastTest, AFullNodeIsWaitedForAndCostsNothing) {
  const NodeKey a = h_.Up("a");
  const NodeKey b = h_.Up("b");
  const Generation g = h_.Create(a, x, {.complete = true});
  Ask(a, x, {"*"}, /*sticky=*/true);
  h_.Want(b, x);
  h_.WantWithoutRoom(b, x, g);
  const size_t messages = h_.messages();
  h_.Advance(10 * kLease);
  EXPECT_EQ(h_.messages(), messages) << "nobody is told anything";
  EXPECT_EQ(Answers(a), 0);
  EXPECT_EQ(Progress(a, x).named_without_room(), 1u);
  h_.Want(b, x);
  h_.Finish(b, x);
  EXPECT_EQ(Answer(a).nodes(), 2u);
}

TEST_F(BroadcastTest, ADeliveredCopyCountsWhenItIsConfirmed) {
  const NodeKey a = h_.Up("a");
  const NodeKey b = h_.Up("b");
  h_.Create(a, x, {.inline_bytes = "small"});
  h_.Want(b, x);
  ASSERT_EQ(h_.Count(b, Kind::kDeliver), 1);
  Ask(a, x, {"*"}, /*sticky=*/false);
  EXPECT_EQ(Orders(b), 1) << "for its word";
  EXPECT_EQ(Answers(a), 0);
  v1::PullReport report;
  report.set_object_id(x.binary().data(), ObjectId::kSize);
  *report.mutable_generation() = h_.Describe(x).summary().generation();
  report.set_plan_id(LastOrder(b));
  report.set_complete(true);
  h_.Report(b, report);
  EXPECT_EQ(Answer(a).nodes(), 2u);
}

TEST_F(BroadcastTest, AnEvictionThatCrossedTheOrderIsFollowedByAnother) {
  const NodeKey a = h_.Up("a");
  const NodeKey b = h_.Up("b");
  const NodeKey c = h_.Up("c");
  const Generation g = h_.Create(a, x, {.inline_bytes = "small"});
  h_.Want(b, x);
  Ask(c, x, {"b"}, /*sticky=*/false);
  h_.Evict(b, x, g);
  EXPECT_TRUE(h_.Last(b, Kind::kEvictReply)->evict_reply().granted());
  EXPECT_EQ(Orders(b), 2);
  EXPECT_EQ(Answers(c), 0);
}

TEST_F(BroadcastTest, AnEvictedCopyIsNotBroughtBack) {
  const NodeKey a = h_.Up("a");
  const NodeKey b = h_.Up("b");
  const Generation g = h_.Create(a, x, {.complete = true});
  Ask(a, x, {"*"}, /*sticky=*/true);
  Fetch(b, x);
  h_.Evict(b, x, g);
  h_.Advance(10 * kLease);
  h_.Up("c");
  EXPECT_EQ(Orders(b), 1);
}

TEST_F(BroadcastTest, ARestartedShardLearnsTheStickyObjects) {
  const NodeKey a = h_.Up("a");
  const Generation g = h_.Create(a, x, {.complete = true});
  Ask(a, x, {"*"}, /*sticky=*/true);
  const v1::StickyMark mark = MarkOf(a);
  const NodeKey b = h_.Up("b");
  h_.RestartShard();
  h_.Clear();
  h_.NewSession(b, true);
  h_.RegisterEnd(b);
  h_.NewSession(a, true);
  RegisterSticky(a, x, g, mark);
  h_.RegisterEnd(a);
  EXPECT_EQ(Orders(b), 0) << "it may still tell that it has the object";
  h_.Advance(2 * kLease);
  EXPECT_EQ(Orders(b), 1);
  EXPECT_TRUE(Sticky(x));
  EXPECT_EQ(Orders(h_.Up("c")), 1);
}

TEST_F(BroadcastTest, ARequestWhileTheShardLearnsIsAnsweredAfterwards) {
  const NodeKey a = h_.Up("a");
  const NodeKey b = h_.Up("b");
  const Generation g = h_.Create(a, x, {.complete = true});
  h_.RestartShard();
  h_.Clear();
  h_.NewSession(a, true);
  RegisterSticky(a, x, g, {});
  h_.RegisterEnd(a);
  Ask(a, x, {"*"}, /*sticky=*/false);
  EXPECT_EQ(Answers(a), 0);
  h_.NewSession(b, true);
  h_.RegisterEnd(b);
  h_.Advance(2 * kLease);
  EXPECT_EQ(Orders(b), 1);
  Fetch(b, x);
  EXPECT_EQ(Answer(a).nodes(), 2u);
}

TEST_F(BroadcastTest, ANodeThatWasAwayCannotUndoAStop) {
  const NodeKey a = h_.Up("a");
  const NodeKey b = h_.Up("b");
  const Generation g = h_.Create(a, x, {.complete = true});
  Ask(a, x, {"*"}, /*sticky=*/true);
  Fetch(b, x);
  const v1::StickyMark on = MarkOf(b);
  h_.Down(b);
  Stop(a, x);
  const v1::StickyMark off = MarkOf(a);
  EXPECT_GT(off.stamp(), on.stamp());
  EXPECT_TRUE(off.nodes().empty());
  h_.NewSession(b, true);
  RegisterSticky(b, x, g, on);
  h_.RegisterEnd(b);
  EXPECT_FALSE(Sticky(x));
  EXPECT_EQ(MarkOf(b).stamp(), off.stamp()) << "and is told better";
  // Nor with a shard that began anew, whoever comes first.
  h_.RestartShard();
  h_.NewSession(b, true);
  RegisterSticky(b, x, g, on);
  h_.RegisterEnd(b);
  EXPECT_TRUE(Sticky(x));
  h_.NewSession(a, true);
  RegisterSticky(a, x, g, off);
  h_.RegisterEnd(a);
  EXPECT_FALSE(Sticky(x));
  h_.Advance(2 * kLease);
  EXPECT_EQ(Orders(h_.Up("c")), 0);
}

// The shard that stops it knows nothing of what an earlier one has told a node that is away.
TEST_F(BroadcastTest, AStopOverridesThePolicyOfAnEarlierShard) {
  const NodeKey a = h_.Up("a");
  const NodeKey b = h_.Up("b");
  const Generation g = h_.Create(a, x, {.complete = true});
  Ask(a, x, {"c"}, /*sticky=*/true);
  const v1::StickyMark first = MarkOf(a);
  Fetch(b, x);
  Ask(a, x, {"d"}, /*sticky=*/true);
  const v1::StickyMark second = MarkOf(b);
  EXPECT_GT(second.stamp(), first.stamp());
  h_.RestartShard();
  h_.NewSession(a, true);
  RegisterSticky(a, x, g, first);
  h_.RegisterEnd(a);
  h_.Advance(2 * kLease);
  Stop(a, x);
  h_.NewSession(b, true);
  RegisterSticky(b, x, g, second);
  h_.RegisterEnd(b);
  EXPECT_FALSE(Sticky(x));
}

TEST_F(BroadcastTest, ANodeThatFetchesAfterAStopIsNotified) {
  const NodeKey a = h_.Up("a");
  h_.Create(a, x, {.complete = true});
  Ask(a, x, {"*"}, /*sticky=*/true);
  Stop(a, x);
  const NodeKey b = h_.Up("b");
  Fetch(b, x);
  EXPECT_EQ(MarkOf(b).stamp(), MarkOf(a).stamp());
  EXPECT_TRUE(MarkOf(b).nodes().empty());
}

TEST_F(BroadcastTest, ALostObjectCanBeStopped) {
  const NodeKey a = h_.Up("a");
  const NodeKey b = h_.Up("b");
  const NodeKey c = h_.Up("c");
  h_.Create(a, x);
  Ask(c, x, {"*"}, /*sticky=*/true);
  h_.Want(b, x);
  h_.Down(a);
  h_.Advance(2 * kLease);
  Stop(c, x);
  EXPECT_EQ(Answer(c).code(), 0);
  h_.Create(c, x, {.complete = true});
  EXPECT_FALSE(Sticky(x));
}

TEST_F(BroadcastTest, ARequesterThatLeavesWhileTheShardLearnsHasBegunTheBroadcast) {
  h_.RestartShard();
  const NodeKey a = h_.Up("a");
  const NodeKey b = h_.Up("b");
  h_.Create(a, x, {.complete = true});
  Ask(a, x, {"*"}, /*sticky=*/true);
  Leave(a, x);
  h_.Advance(2 * kLease);
  EXPECT_TRUE(Sticky(x));
  EXPECT_EQ(Orders(b), 1);
  EXPECT_EQ(Counter("broadcasts_waited_for"), 0u);
}

TEST_F(BroadcastTest, ACancelledBroadcastOrdersItsNodesWhenTheShardHasLearned) {
  h_.RestartShard();
  const NodeKey a = h_.Up("a");
  const NodeKey b = h_.Up("b");
  const NodeKey c = h_.Up("c");
  h_.Create(a, x, {.complete = true});
  Ask(a, x, {"b"}, /*sticky=*/false);
  Leave(a, x);
  h_.Advance(2 * kLease);
  EXPECT_EQ(Orders(b), 1);
  EXPECT_EQ(Orders(c), 0);
  EXPECT_EQ(Counter("broadcasts_waited_for"), 0u);
}

// Of a mark that none has told the shard takes nothing; the copy counts.
TEST_F(BroadcastTest, AMarkThatNoShardMintedIsIgnored) {
  const NodeKey a = h_.Up("a");
  const Generation g = h_.Create(a, x, {.complete = true});
  v1::StickyMark forged;
  forged.set_stamp(uint64_t{1} << 62);
  forged.add_nodes("*");
  h_.RestartShard();
  h_.NewSession(a, true);
  RegisterSticky(a, x, g, forged);
  h_.RegisterEnd(a);
  h_.Advance(2 * kLease);
  EXPECT_FALSE(Sticky(x));
  EXPECT_EQ(h_.Describe(x).summary().complete_copies(), 1u);
}

TEST_F(BroadcastTest, StickyNamesAddUp) {
  const NodeKey a = h_.Up("a");
  h_.Create(a, x, {.complete = true});
  Ask(a, x, {"b"}, /*sticky=*/true);
  Ask(a, x, {"c"}, /*sticky=*/true);
  EXPECT_EQ(Orders(h_.Up("b")), 1);
  EXPECT_EQ(Orders(h_.Up("c")), 1);
  EXPECT_EQ(Orders(h_.Up("d")), 0);
  Ask(a, x, {"*"}, /*sticky=*/true);
  EXPECT_THAT(MarkOf(a).nodes(), ElementsAre("*"));
}

TEST_F(BroadcastTest, ARequesterThatLeavesIsNotAnswered) {
  const NodeKey a = h_.Up("a");
  const NodeKey b = h_.Up("b");
  h_.Create(a, x, {.complete = true});
  Ask(a, x, {"*"}, /*sticky=*/false);
  Leave(a, x);
  EXPECT_EQ(Counter("broadcasts_waited_for"), 0u);
  EXPECT_EQ(Orders(b), 1) << "the broadcast continues";
  Fetch(b, x);
  EXPECT_EQ(Answers(a), 0);
}

TEST_F(BroadcastTest, ALeavingNodeIsNotOrdered) {
  const NodeKey a = h_.Up("a");
  const NodeKey b = h_.Up("b");
  h_.Create(a, x, {.complete = true});
  v1::NodeMessage drain;
  drain.mutable_drain_request();
  PHALANX_ASSERT_OK(h_.Send(b, drain));
  Ask(a, x, {"*"}, /*sticky=*/true);
  EXPECT_EQ(Orders(b), 0);
  EXPECT_EQ(Answer(a).nodes(), 1u);
}

// A joining node has much to fetch: some at a time, each looked at once.
TEST_F(BroadcastTest, AJoiningNodeIsOrderedSomeAtATime) {
  const NodeKey a = h_.Up("a");
  constexpr int kObjects = 200;
  for (int i = 0; i < kObjects; ++i) {
    const ObjectId id = Id("object " + std::to_string(i));
    h_.Create(a, id, {.complete = true});
    Ask(a, id, {"*"}, /*sticky=*/true);
  }
  const uint64_t before = Counter("broadcasts_examined");
  const NodeKey b = h_.Up("b");
  EXPECT_EQ(Orders(b), 64);
  EXPECT_EQ(Counter("broadcasts_examined") - before, 64u);
  for (int done = 0; done < kObjects; ++done) {
    ASSERT_LE(Orders(b), done + 64);
    ASSERT_GT(Orders(b), done);
    const std::vector<v1::ShardMessage> received = h_.Received(b);
    std::vector<ObjectId> orders;
    for (const v1::ShardMessage& message : received) {
      if (message.has_fetch()) orders.push_back(*ObjectId::FromBinary(message.fetch().object_id()));
    }
    Fetch(b, orders[static_cast<size_t>(done)]);
  }
  EXPECT_EQ(Orders(b), kObjects);
  EXPECT_EQ(Counter("broadcasts_examined") - before, static_cast<uint64_t>(kObjects));
}

// With so many that a turn does not look at them all, the rest is due at once.
TEST_F(BroadcastTest, ObjectsThatATurnLeavesAreExaminedInTheNext) {
  h_.CheckEvery(100);
  const NodeKey a = h_.Up("a");
  constexpr int kObjects = 2500;
  for (int i = 0; i < kObjects; ++i) {
    const ObjectId id = Id("object " + std::to_string(i));
    h_.Create(a, id, {.complete = true});
    Ask(a, id, {"z"}, /*sticky=*/true);
  }
  const uint64_t before = Counter("broadcasts_examined");
  h_.Up("b");
  EXPECT_LE(Counter("broadcasts_examined") - before, 2u * 1024u);
  EXPECT_EQ(h_.core().NextDeadline(), h_.now());
  h_.Advance(absl::Milliseconds(1));
  h_.Advance(absl::Milliseconds(1));
  EXPECT_EQ(Counter("broadcasts_examined") - before, static_cast<uint64_t>(kObjects));
  EXPECT_GT(h_.core().NextDeadline(), h_.now());
}

TEST_F(BroadcastTest, ProgressCountsTheCopiesThatArrived) {
  const NodeKey a = h_.Up("a");
  const NodeKey b = h_.Up("b");
  h_.Up("c");
  h_.Create(a, x, {.size = 1000, .complete = true});
  Ask(a, x, {"*"}, /*sticky=*/true);
  h_.Want(b, x);
  h_.Progress(b, x, 400, 1e6);
  const v1::QueryReply progress = Progress(a, x);
  EXPECT_EQ(progress.named(), 3u);
  EXPECT_EQ(progress.named_complete(), 1u);
  EXPECT_EQ(progress.named_bytes(), 1400u);
  EXPECT_EQ(progress.named_without_room(), 0u);
  EXPECT_TRUE(progress.sticky());
}

TEST(BroadcastLimitsTest, NoMoreAreTakenThanAllowed) {
  DirectoryOptions options;
  options.max_sticky = 1;
  options.max_broadcasts = 1;
  Harness h(/*learning=*/false, options);
  const NodeKey a = h.Up("a");
  h.Up("b");
  h.Create(a, x, {.complete = true});
  h.Create(a, y, {.complete = true});
  const auto ask = [&](const ObjectId& id, bool sticky) {
    v1::NodeMessage message;
    v1::BroadcastRequest& m = *message.mutable_broadcast_request();
    m.set_object_id(id.binary().data(), ObjectId::kSize);
    m.add_nodes(sticky ? "zed" : "*");
    m.set_sticky(sticky);
    h.Clear();
    h.Send(a, message).IgnoreError();
    const auto reply = h.Last(a, Kind::kBroadcastReply);
    return reply.has_value() ? reply->broadcast_reply().code() : -1;
  };
  constexpr int kFull = static_cast<int>(absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(ask(x, /*sticky=*/true), 0);
  EXPECT_EQ(ask(y, /*sticky=*/true), kFull);
  EXPECT_EQ(ask(x, /*sticky=*/false), -1) << "it is under way";
  EXPECT_EQ(ask(y, /*sticky=*/false), kFull);
}

TEST(BroadcastBadInputTest, IsRefused) {
  Harness h;
  const NodeKey a = h.Up("a");
  v1::NodeMessage message;
  v1::BroadcastRequest& m = *message.mutable_broadcast_request();
  constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;
  m.set_object_id("short");
  EXPECT_THAT(h.Send(a, message), StatusIs(kInvalid, HasSubstr("object_id")));
  m.set_object_id(x.binary().data(), ObjectId::kSize);
  EXPECT_THAT(h.Send(a, message), StatusIs(kInvalid, HasSubstr("nodes")));
  m.add_nodes("");
  EXPECT_THAT(h.Send(a, message), StatusIs(kInvalid, HasSubstr("empty")));
  m.set_nodes(0, std::string(257, 'n'));
  EXPECT_THAT(h.Send(a, message), StatusIs(kInvalid, HasSubstr("257 bytes")));
  m.set_nodes(0, "n");
  m.mutable_mark()->set_stamp(1);
  m.mutable_mark()->add_nodes("");
  EXPECT_THAT(h.Send(a, message), StatusIs(kInvalid, HasSubstr("empty")));
  m.clear_mark();
  for (int i = 0; i < 256; ++i) m.add_nodes("n");
  EXPECT_THAT(h.Send(a, message), StatusIs(kInvalid, HasSubstr("257 names")));
}

}  // namespace
}  // namespace phalanx::directory::testing
