// Broadcasts that have begun: who asks again in a new session, of the same shard or of another one,
// neither undoes a stop nor is told what is not so; and who leaves is not waited for.
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "src/directory/testing/broadcast_harness.h"

namespace phalanx::directory::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr int kNotFound = static_cast<int>(absl::StatusCode::kNotFound);
constexpr int kDataLoss = static_cast<int>(absl::StatusCode::kDataLoss);
constexpr int kExhausted = static_cast<int>(absl::StatusCode::kResourceExhausted);

TEST_F(BroadcastTest, ARequesterIsNotifiedThatTheBroadcastHasBegun) {
  const NodeKey a = h_.Up("a");
  h_.Create(a, x, {.complete = true});
  Ask(a, x, {"*"}, /*sticky=*/true);
  EXPECT_EQ(Begun(a), 0) << "it has ended as well";
  const NodeKey b = h_.Up("b");
  Ask(a, x, {"b"}, /*sticky=*/false, /*request=*/2);
  ASSERT_EQ(Begun(a), 1);
  EXPECT_EQ(h_.Last(a, Kind::kBroadcastBegun)->broadcast_begun().request_id(), 2u);
  EXPECT_EQ(BegunMark(a).stamp(), 0u);
  Ask(b, x, {"*"}, /*sticky=*/true, /*request=*/3);
  EXPECT_EQ(BegunMark(b).stamp(), MarkOf(a).stamp());
  EXPECT_THAT(BegunMark(b).nodes(), ElementsAre("*"));
}

TEST_F(BroadcastTest, ARetryFromBeforeAStopDoesNotUndoTheStop) {
  const NodeKey a = h_.Up("a");
  const NodeKey b = h_.Up("b");
  const Generation g = h_.Create(a, x, {.complete = true});
  Ask(a, x, {"*"}, /*sticky=*/true);
  const v1::StickyMark on = BegunMark(a);
  Stop(a, x);
  const v1::StickyMark off = MarkOf(a);
  EXPECT_GT(off.stamp(), on.stamp());
  EXPECT_EQ(Answers(a), 1) << "that it has stopped; who asked waits for b";
  Return(a, x, g, off);
  AskAgain(a, x, {"*"}, on);
  EXPECT_FALSE(Sticky(x));
  h_.RestartShard();
  Return(a, x, g, off);
  AskAgain(a, x, {"*"}, on);
  Return(b);
  h_.Advance(2 * kLease);
  EXPECT_FALSE(Sticky(x));
  Fetch(b, x);
  EXPECT_EQ(Answers(a), 2) << "it has waited on";
  EXPECT_EQ(Answer(a).nodes(), 2u);
  Ask(a, x, {"*"}, /*sticky=*/true, /*request=*/2);
  EXPECT_TRUE(Sticky(x)) << "this is another one";
}

// The shard took the mark to its grave before a holder had heard of it.
TEST_F(BroadcastTest, ABegunBroadcastOutlivesTheShardWithItsRequester) {
  const NodeKey a = h_.Up("a");
  const NodeKey b = h_.Up("b");
  const Generation g = h_.Create(a, x, {.complete = true});
  Ask(b, x, {"b", "zed"}, /*sticky=*/true);
  const v1::StickyMark on = BegunMark(b);
  h_.RestartShard();
  h_.Clear();
  Return(b);
  AskAgain(b, x, {"b", "zed"}, on);
  Return(a, x, g, {});
  h_.Advance(2 * kLease);
  EXPECT_TRUE(Sticky(x));
  EXPECT_EQ(MarkOf(a).stamp(), on.stamp()) << "it is the same one";
  EXPECT_EQ(Begun(b), 0);
  EXPECT_EQ(Orders(b), 1);
}

// Though a new one is asked for earlier in the shard's new life.
TEST_F(BroadcastTest, ABegunBroadcastAndANewOneAreJoinedAfterARestart) {
  const NodeKey a = h_.Up("a");
  const NodeKey b = h_.Up("b");
  const Generation g = h_.Create(a, x, {.complete = true});
  Ask(b, x, {"b"}, /*sticky=*/true);
  const v1::StickyMark on = BegunMark(b);
  h_.RestartShard();
  Return(a, x, g, {});
  Ask(a, x, {"zed"}, /*sticky=*/true);
  Return(b, on.stamp());
  AskAgain(b, x, {"b"}, on);
  h_.Advance(2 * kLease);
  EXPECT_THAT(MarkOf(a).nodes(), ElementsAre("b", "zed"));
}

// All that has been told is away with b, but for the stamp.
TEST_F(BroadcastTest, AStopCountsThoughNoNodeHasRegisteredAMark) {
  const NodeKey a = h_.Up("a");
  const NodeKey b = h_.Up("b");
  const NodeKey c = h_.Up("c");
  const Generation g = h_.Create(a, x, {.complete = true});
  Fetch(b, x);
  Ask(c, x, {"*"}, /*sticky=*/true);
  const v1::StickyMark on = BegunMark(c);
  h_.RestartShard();
  Return(a, x, g, {});
  Stop(a, x);
  Return(c, on.stamp());
  const int before = Answers(a);
  h_.Advance(2 * kLease);
  EXPECT_EQ(Answers(a), before + 1) << "when the shard has heard what there is to hear";
  EXPECT_GT(MarkOf(a).stamp(), on.stamp());
  EXPECT_TRUE(MarkOf(a).nodes().empty());
  Return(b, x, g, on);
  EXPECT_FALSE(Sticky(x));
}

// A mark of an earlier life that says the same is not enough: b, who is away, knows a greater one.
TEST_F(BroadcastTest, AStopCountsThoughItWasStoppedBefore) {
  const NodeKey a = h_.Up("a");
  const NodeKey b = h_.Up("b");
  const Generation g = h_.Create(a, x, {.complete = true});
  Fetch(b, x);
  Ask(a, x, {"zed"}, /*sticky=*/true);
  Stop(a, x);
  const v1::StickyMark off = MarkOf(a);
  Ask(a, x, {"*"}, /*sticky=*/true);
  const v1::StickyMark on = MarkOf(b);
  ASSERT_GT(on.stamp(), off.stamp());
  h_.RestartShard();
  Return(a, x, g, off);
  Stop(a, x);
  h_.Advance(2 * kLease);
  Return(b, x, g, on);
  EXPECT_FALSE(Sticky(x));
  EXPECT_TRUE(MarkOf(b).nodes().empty());
}

TEST_F(BroadcastTest, WhatIsStickyCountsThoughItWasBefore) {
  const NodeKey a = h_.Up("a");
  const NodeKey b = h_.Up("b");
  const Generation g = h_.Create(a, x, {.complete = true});
  Fetch(b, x);
  Ask(a, x, {"*"}, /*sticky=*/true);
  const v1::StickyMark on = MarkOf(a);
  Stop(a, x);
  const v1::StickyMark off = MarkOf(b);
  ASSERT_GT(off.stamp(), on.stamp());
  h_.RestartShard();
  Return(a, x, g, on);
  Ask(a, x, {"*"}, /*sticky=*/true);
  h_.Advance(2 * kLease);
  Return(b, x, g, off);
  EXPECT_TRUE(Sticky(x));
}

// The stamps of the life before are told when the new one has minted some already.
TEST_F(BroadcastTest, AStopCountsThoughStampsAreRegisteredLate) {
  const NodeKey a = h_.Up("a");
  const NodeKey b = h_.Up("b");
  const NodeKey d = h_.Up("d");
  const Generation g = h_.Create(a, x, {.complete = true});
  const Generation h = h_.Create(a, y, {.complete = true});
  Fetch(b, x);
  h_.RestartShard();
  Return(a, x, g, {});
  h_.Advance(2 * kLease);
  Return(a, y, h, {});
  Ask(a, y, {"zed"}, /*sticky=*/true);
  v1::StickyMark on;
  on.set_stamp(MarkOf(a).stamp() + 10);
  on.add_nodes("*");
  Return(d, on.stamp() - 5);
  Return(a, x, g, {});
  Stop(d, x);
  Return(b, x, g, on);
  EXPECT_FALSE(Sticky(x));
}

TEST_F(BroadcastTest, AnObjectWithoutCopiesAndWantsCanBeStopped) {
  const NodeKey a = h_.Up("a");
  const NodeKey b = h_.Up("b");
  const Generation g = h_.Create(b, x, {.complete = true});
  Ask(b, x, {"*"}, /*sticky=*/true);
  const v1::StickyMark on = MarkOf(b);
  h_.Down(b);
  ASSERT_FALSE(h_.Known(x));
  Stop(a, x);
  EXPECT_EQ(Answer(a).code(), 0);
  Return(b, x, g, on);
  EXPECT_FALSE(Sticky(x));
  EXPECT_TRUE(MarkOf(b).nodes().empty());
}

// Also when nobody but b had a copy, so that the shard took it for lost meanwhile.
TEST_F(BroadcastTest, AStopOutlivesTheAbsenceOfTheLastHolder) {
  const NodeKey a = h_.Up("a");
  const NodeKey b = h_.Up("b");
  const Generation g = h_.Create(b, x, {.complete = true});
  Ask(b, x, {"*"}, /*sticky=*/true);
  const v1::StickyMark on = MarkOf(b);
  Stop(a, x);
  h_.Down(b);
  EXPECT_FALSE(h_.Known(x));
  Return(b, x, g, on);
  EXPECT_FALSE(Sticky(x));
  EXPECT_GT(MarkOf(b).stamp(), on.stamp());
  EXPECT_TRUE(MarkOf(b).nodes().empty());
  h_.Down(b);
  h_.Create(a, x, {.complete = true});
  Ask(a, x, {"zed"}, /*sticky=*/true);
  EXPECT_TRUE(Sticky(x)) << "what is put later is another object";
}

TEST(BroadcastFirstLifeTest, AStopOfANeverStickyObjectLeavesNothing) {
  Harness h(/*learning=*/false, {.first_life = true});
  const NodeKey a = h.Up("a");
  h.Create(a, x, {.complete = true});
  v1::NodeMessage message;
  message.mutable_broadcast_request()->set_object_id(x.binary().data(), ObjectId::kSize);
  message.mutable_broadcast_request()->set_stop(true);
  h.Send(a, message).IgnoreError();
  EXPECT_EQ(h.Last(a, Kind::kBroadcastReply)->broadcast_reply().code(), 0);
  EXPECT_EQ(h.Count(a, Kind::kSticky), 0);
}

TEST_F(BroadcastTest, ARetryDoesNotWaitForANamedNodeThatIsGone) {
  const NodeKey a = h_.Up("a");
  const NodeKey b = h_.Up("b");
  const NodeKey c = h_.Up("c");
  const Generation g = h_.Create(a, x, {.complete = true});
  Ask(a, x, {"b", "c"}, /*sticky=*/false);
  h_.Connected(a, false);
  h_.Down(b);
  Return(a, x, g, {});
  AskAgain(a, x, {"b", "c"}, std::nullopt);
  EXPECT_EQ(Answers(a), 0);
  Fetch(c, x);
  EXPECT_EQ(Answer(a).code(), 0);
  EXPECT_EQ(Answer(a).nodes(), 1u);
  AskAgain(a, x, {"b"}, std::nullopt, /*request=*/2);
  EXPECT_EQ(Answer(a).code(), 0) << "nobody is left";
  EXPECT_EQ(Answer(a).nodes(), 0u);
  Ask(a, x, {"b", "c"}, /*sticky=*/false, /*request=*/3);
  EXPECT_EQ(Answer(a).code(), static_cast<int>(absl::StatusCode::kInvalidArgument))
      << "of one that has not begun it is a mistake";
}

TEST_F(BroadcastTest, ARetryWhoseObjectTheShardLostGetsDataLoss) {
  const NodeKey a = h_.Up("a");
  const NodeKey b = h_.Up("b");
  const Generation g = h_.Create(a, x, {.complete = true});
  h_.RestartShard();
  Return(b);
  AskAgain(b, x, {"*"}, std::nullopt);
  h_.Advance(2 * kLease);
  EXPECT_EQ(Answer(b).code(), kDataLoss);
  Ask(b, x, {"*"}, /*sticky=*/false, /*request=*/2);
  EXPECT_EQ(Answer(b).code(), kNotFound);
  h_.NewSession(a, true);
  h_.RegisterTombstone(a, x, g);
  h_.RegisterEnd(a);
  AskAgain(b, x, {"*"}, std::nullopt, /*request=*/3);
  EXPECT_EQ(Answer(b).code(), kNotFound);
  EXPECT_THAT(Answer(b).message(), HasSubstr("deleted"));
}

TEST_F(BroadcastTest, ANodeThatRegistersTheCurrentMarkIsNotSentIt) {
  const NodeKey a = h_.Up("a");
  const Generation g = h_.Create(a, x, {.complete = true});
  Ask(a, x, {"*"}, /*sticky=*/true);
  const v1::StickyMark mark = MarkOf(a);
  h_.Clear();
  Return(a, x, g, mark);
  EXPECT_EQ(h_.Count(a, Kind::kSticky), 0);
  h_.RestartShard();
  Return(a, x, g, mark);
  h_.Advance(2 * kLease);
  EXPECT_EQ(h_.Count(a, Kind::kSticky), 0);
  Stop(a, x);
  EXPECT_EQ(h_.Count(a, Kind::kSticky), 1);
}

TEST_F(BroadcastTest, ADrainingNodeIsAwaitedOnlyForObjectsThatItReceives) {
  const NodeKey a = h_.Up("a");
  const NodeKey b = h_.Up("b");
  const NodeKey c = h_.Up("c");
  const Generation g = h_.Create(a, x, {.complete = true});
  Ask(a, x, {"*"}, /*sticky=*/true);
  h_.Want(b, x);
  h_.WantWithoutRoom(b, x, g);
  h_.Want(c, x);
  v1::NodeMessage drain;
  drain.mutable_drain_request();
  h_.Send(c, drain).IgnoreError();
  h_.Send(b, drain).IgnoreError();
  EXPECT_EQ(Answers(a), 0) << "c gets it";
  h_.Finish(c, x);
  EXPECT_EQ(Answer(a).code(), 0);
  EXPECT_EQ(Answer(a).nodes(), 2u);
}

TEST(BroadcastDeferredTest, NamesThatWaitAreBounded) {
  DirectoryOptions options;
  options.max_deferred_name_bytes = 1000;
  Harness h(/*learning=*/true, options);
  const NodeKey a = h.Up("a");
  v1::NodeMessage broadcast;
  v1::BroadcastRequest& m = *broadcast.mutable_broadcast_request();
  m.set_object_id(x.binary().data(), ObjectId::kSize);
  m.add_nodes(std::string(256, 'n'));
  m.mutable_mark()->add_nodes(std::string(256, 'n'));
  m.mutable_mark()->set_stamp(1);
  v1::NodeMessage query;
  query.mutable_query_request()->set_object_id(x.binary().data(), ObjectId::kSize);
  query.mutable_query_request()->add_nodes(std::string(256, 'n'));
  h.Send(a, broadcast).IgnoreError();
  EXPECT_EQ(h.Count(a, Kind::kBroadcastReply), 0);
  h.Send(a, broadcast).IgnoreError();
  ASSERT_EQ(h.Count(a, Kind::kBroadcastReply), 1);
  EXPECT_EQ(h.Last(a, Kind::kBroadcastReply)->broadcast_reply().code(), kExhausted);
  h.Send(a, query).IgnoreError();
  EXPECT_EQ(h.Count(a, Kind::kQueryReply), 0);
  h.Send(a, query).IgnoreError();
  ASSERT_EQ(h.Count(a, Kind::kQueryReply), 1);
  EXPECT_EQ(h.Last(a, Kind::kQueryReply)->query_reply().code(), kExhausted);
  h.Advance(2 * kLease);
  EXPECT_EQ(h.Count(a, Kind::kBroadcastReply), 2);
  EXPECT_EQ(h.Count(a, Kind::kQueryReply), 2);
}

}  // namespace
}  // namespace phalanx::directory::testing
