// Ways around nodes that cannot reach each other, as nodes see them.
#include "src/directory/pulls/pull_routes.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_join.h"
#include "gtest/gtest.h"
#include "src/directory/core/validate.h"
#include "src/directory/testing/directory_core_harness.h"

namespace phalanx::directory {
namespace {

using absl::StatusCode;
using testing::Harness;
using testing::Id;
using Kind = v1::ShardMessage::KindCase;

constexpr absl::Duration kLease = absl::Seconds(2);
const ObjectId x = Id("x");
const ObjectId y = Id("y");

// Node a has put x, and b asks for it; the others have nothing.
class PullRoutesTest : public ::testing::Test {
 protected:
  void Begin(int others) {
    for (int i = 0; i < others; ++i) others_.push_back(h_.Up(std::string(1, 'c' + i)));
    h_.Create(a_, x, {.complete = true});
    h_.Want(b_, x);
    ASSERT_EQ(h_.SenderOf(b_, x), a_);
  }
  void Fail(const NodeKey& receiver, StatusCode code = StatusCode::kDeadlineExceeded) {
    h_.Fail(receiver, x, code);
  }
  int Orders(const NodeKey& node) {
    int orders = 0;
    for (const v1::ShardMessage& message : h_.Received(node)) {
      if (message.has_fetch()) orders += message.fetch().end() ? -1 : 1;
    }
    return orders;
  }
  int AllOrders() {
    int orders = 0;
    for (const NodeKey& node : others_) orders += Orders(node);
    return orders;
  }
  // The one node with an open order.
  NodeKey Relay() {
    EXPECT_EQ(AllOrders(), 1);
    for (const NodeKey& node : others_) {
      if (Orders(node) == 1) return node;
    }
    return NodeKey();
  }
  PlanId Order(const NodeKey& node) { return h_.Last(node, Kind::kFetch)->fetch().plan_id(); }
  void Connecting(const NodeKey& receiver) {
    v1::NodeMessage message;
    v1::Progress::Pull& pull = *message.mutable_progress()->add_pulls();
    pull.set_object_id(x.binary().data(), ObjectId::kSize);
    const testing::Assignment assigned = *h_.LastAssign(receiver, x);
    ToProto(assigned.generation, pull.mutable_generation());
    pull.set_plan_id(assigned.plan);
    pull.add_watermarks(0);
    pull.set_connecting(true);
    h_.Send(receiver, message).IgnoreError();
  }
  std::string Trouble() {
    const v1::DescribeObjectResponse object = h_.Describe(x);
    return absl::StrJoin(object.troubles(), "\n");
  }

  Harness h_;
  const NodeKey a_ = h_.Up("a");
  const NodeKey b_ = h_.Up("b");
  std::vector<NodeKey> others_;
};

TEST_F(PullRoutesTest, AThirdNodeFetchesAndHandsOn) {
  Begin(2);
  Fail(b_);
  const NodeKey relay = Relay();
  EXPECT_EQ(Trouble(), "b cannot reach a (" + h_.Info(a_).address() + "); " +
                           h_.Info(relay).name() + " hands its bytes on");
  h_.Want(relay, x);
  EXPECT_EQ(h_.SenderOf(relay, x), a_);
  EXPECT_EQ(h_.SenderOf(b_, x), relay) << "before the relay has a byte";
  h_.Finish(relay, x);
  EXPECT_EQ(Orders(relay), 1) << "b has not everything";
  h_.Finish(b_, x);
  EXPECT_EQ(Orders(relay), 0);
  EXPECT_EQ(Trouble(), "");
}

TEST_F(PullRoutesTest, ABrokenConnectionIsTriedAgainFirst) {
  Begin(2);
  Fail(b_, StatusCode::kUnavailable);
  EXPECT_EQ(AllOrders(), 0);
  h_.Advance(absl::Milliseconds(10));
  EXPECT_EQ(h_.SenderOf(b_, x), a_);
  Fail(b_, StatusCode::kUnavailable);
  EXPECT_EQ(AllOrders(), 1);
}

TEST_F(PullRoutesTest, AKnownCutIsNotTriedAgainInTheLease) {
  Begin(2);
  Fail(b_);
  h_.Create(a_, y, {.complete = true});
  h_.Clear();
  h_.Want(b_, y);
  EXPECT_EQ(h_.Count(b_, Kind::kAssign), 0);
  EXPECT_EQ(AllOrders(), 1);
}

TEST_F(PullRoutesTest, APairIsUsedAgainAfterALease) {
  Begin(2);
  Fail(b_);
  h_.Create(a_, y, {.complete = true});
  h_.Advance(kLease);
  h_.Want(b_, y);
  EXPECT_EQ(h_.SenderOf(b_, y), a_);
}

TEST_F(PullRoutesTest, AReceiverThatIsNotConnectedForLongWaitsForTheRelay) {
  Begin(2);
  Connecting(b_);
  const NodeKey relay = Relay();
  h_.Want(relay, x);
  EXPECT_EQ(h_.SenderOf(relay, x), a_) << "not b, which may never have a byte";
  EXPECT_EQ(h_.SenderOf(b_, x), relay);
}

TEST_F(PullRoutesTest, ARelayThatDoesNotReachTheHolderIsReplaced) {
  for (const bool silent : {false, true}) {
    SCOPED_TRACE(silent);
    h_.Clear();
    if (!silent) Begin(2);
    if (silent) {
      h_.Advance(2 * kLease);
      h_.Unwant(b_, x);
      h_.Clear();
      h_.Want(b_, x);
    }
    Fail(b_);
    const NodeKey first = Relay();
    h_.Want(first, x);
    silent ? Connecting(first) : Fail(first);
    const NodeKey second = Relay();
    EXPECT_NE(second, first);
    h_.Want(second, x);
    EXPECT_EQ(h_.SenderOf(b_, x), second);
    h_.Unwant(first, x);
    h_.Unwant(b_, x);
    h_.Unwant(second, x);
    EXPECT_EQ(AllOrders(), 0);
  }
}

TEST_F(PullRoutesTest, ARelayThatTheReceiverDoesNotReachIsReplaced) {
  Begin(2);
  Fail(b_);
  const NodeKey first = Relay();
  h_.Want(first, x);
  ASSERT_EQ(h_.SenderOf(b_, x), first);
  Fail(b_);
  const NodeKey second = Relay();
  EXPECT_NE(second, first);
  h_.Want(second, x);
  EXPECT_EQ(h_.SenderOf(b_, x), second);
}

// A connection from before the cut works on, but the probe's new one does not come up.
TEST_F(PullRoutesTest, ARelayThatDeliversOverAnOldConnectionIsKept) {
  for (const bool delivers : {true, false}) {
    SCOPED_TRACE(delivers);
    Harness h;
    const NodeKey a = h.Up("a");
    const NodeKey b = h.Up("b");
    const std::vector<NodeKey> others = {h.Up("c"), h.Up("d")};
    h.Create(a, x, {.complete = true});
    h.Want(b, x);
    h.Fail(b, x, StatusCode::kDeadlineExceeded);
    const bool first = h.Count(others[0], Kind::kFetch) == 1;
    const NodeKey relay = others[first ? 0 : 1];
    const NodeKey other = others[first ? 1 : 0];
    ASSERT_EQ(h.Count(relay, Kind::kFetch), 1);
    h.Want(relay, x);
    ASSERT_EQ(h.SenderOf(b, x), relay);
    if (delivers) {
      h.Progress(relay, x, 1 << 19, 1e6);
      h.Progress(b, x, 1 << 18, 1e6);
    }
    for (const auto& [receiver, sender] : {std::pair(b, relay), std::pair(relay, a)}) {
      v1::NodeMessage message;
      v1::ProbeReport::Unreached& peer = *message.mutable_probe_report()->add_unreached();
      ToProto(sender, peer.mutable_key());
      peer.set_code(static_cast<int32_t>(StatusCode::kDeadlineExceeded));
      ASSERT_TRUE(h.Send(receiver, message).ok());
    }
    // Any change of the object has the shard look at the relay again.
    const NodeKey e = h.Up("e");
    h.Want(e, x);
    h.Unwant(e, x);
    EXPECT_EQ(h.Count(relay, Kind::kFetch), 1) << "it has a receiver";
    EXPECT_EQ(h.Count(other, Kind::kFetch), delivers ? 0 : 1);
    EXPECT_EQ(h.SenderOf(b, x), relay);
  }
}

TEST_F(PullRoutesTest, ARelayThatRefusesIsReplaced) {
  Begin(3);
  Fail(b_);
  const NodeKey first = Relay();
  v1::NodeMessage refusal;
  refusal.mutable_unwant()->set_object_id(x.binary().data(), ObjectId::kSize);
  refusal.mutable_unwant()->set_fetch(Order(first));
  h_.Send(first, refusal).IgnoreError();
  const NodeKey second = Relay();
  EXPECT_NE(second, first);
  h_.Want(second, x);
  h_.WantWithoutRoom(second, x, h_.LastAssign(second, x)->generation);
  const NodeKey third = Relay();
  EXPECT_NE(third, first);
  EXPECT_NE(third, second);
}

TEST_F(PullRoutesTest, ARelayThatDiesIsReplaced) {
  Begin(2);
  Fail(b_);
  const NodeKey first = Relay();
  h_.Want(first, x);
  h_.Clear();
  h_.Down(first);
  const NodeKey second = Relay();
  EXPECT_NE(second, first);
  h_.Want(second, x);
  EXPECT_EQ(h_.SenderOf(b_, x), second);
}

TEST_F(PullRoutesTest, ARelayThatDoesNothingIsReplacedAfterALease) {
  Begin(2);
  Fail(b_);
  const NodeKey first = Relay();
  h_.Advance(kLease - absl::Milliseconds(1));
  EXPECT_EQ(Relay(), first);
  h_.Advance(absl::Milliseconds(1));
  // The pair is forgotten by now: b tries the holder again, and no relay is needed until it fails.
  EXPECT_EQ(h_.SenderOf(b_, x), a_);
  EXPECT_EQ(AllOrders(), 0);
  Fail(b_);
  EXPECT_NE(Relay(), NodeKey());
}

TEST_F(PullRoutesTest, WithoutAThirdNodeTheHolderIsTriedAgain) {
  Begin(0);
  Fail(b_);
  EXPECT_EQ(Trouble(), "b cannot reach a (" + h_.Info(a_).address() +
                           "); no other node is known to reach both");
  const PlanId before = h_.LastAssign(b_, x)->plan;
  h_.Advance(absl::Milliseconds(10));
  EXPECT_NE(h_.LastAssign(b_, x)->plan, before);
  h_.Finish(b_, x);
  EXPECT_EQ(Trouble(), "");
}

TEST_F(PullRoutesTest, ANodeThatJoinsBecomesTheRelay) {
  Begin(0);
  Fail(b_);
  others_.push_back(h_.Up("c"));
  h_.Advance(kLease);
  ASSERT_EQ(h_.SenderOf(b_, x), a_);
  Fail(b_);
  EXPECT_EQ(Relay(), others_[0]);
}

TEST_F(PullRoutesTest, TheOrderEndsWithTheGet) {
  Begin(2);
  Fail(b_);
  const NodeKey relay = Relay();
  h_.Want(relay, x);
  h_.Unwant(b_, x);
  EXPECT_EQ(Orders(relay), 0);
}

TEST_F(PullRoutesTest, TwoReceiversShareARelay) {
  Begin(2);
  const NodeKey e = h_.Up("e");
  Fail(b_);
  h_.Want(e, x);
  ASSERT_EQ(h_.SenderOf(e, x), a_);
  Fail(e);
  const NodeKey relay = Relay();
  h_.Want(relay, x);
  h_.Unwant(b_, x);
  EXPECT_EQ(Orders(relay), 1) << "e needs it";
  h_.Finish(relay, x);
  h_.Finish(e, x);
  EXPECT_EQ(Orders(relay), 0);
}

TEST_F(PullRoutesTest, AReceiverThatReachesTheHolderIsTheRelay) {
  Begin(2);
  const NodeKey e = h_.Up("e");
  h_.Want(e, x);
  ASSERT_EQ(h_.SenderOf(e, x), b_);
  Fail(b_);
  EXPECT_EQ(AllOrders(), 0);
  EXPECT_EQ(h_.SenderOf(e, x), a_);
  EXPECT_EQ(h_.SenderOf(b_, x), e);
}

TEST_F(PullRoutesTest, ANodeThatABroadcastHasOrderedIsNoRelay) {
  Begin(1);
  v1::NodeMessage broadcast;
  broadcast.mutable_broadcast_request()->set_request_id(1);
  broadcast.mutable_broadcast_request()->set_object_id(x.binary().data(), ObjectId::kSize);
  broadcast.mutable_broadcast_request()->add_nodes("*");
  h_.Send(a_, broadcast).IgnoreError();
  ASSERT_EQ(Orders(others_[0]), 1);
  Fail(b_);
  EXPECT_EQ(Orders(others_[0]), 1);
  h_.Want(others_[0], x);
  h_.Finish(others_[0], x);
  h_.Advance(absl::Milliseconds(10));
  EXPECT_EQ(h_.SenderOf(b_, x), others_[0]);
  h_.Finish(b_, x);
  EXPECT_EQ(Orders(others_[0]), 1) << "the copy is the broadcast's";
}

}  // namespace
}  // namespace phalanx::directory
