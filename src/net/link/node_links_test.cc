// Links between simulated nodes, one fault at a time. link_simulation_test.cc has all together.
#include "src/net/link/node_links.h"

#include <memory>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "src/common/testing/scoped_defect.h"
#include "src/common/testing/status_matchers.h"
#include "src/net/testing/sim_links.h"

namespace phalanx::net {
namespace {

using ::phalanx::testing::StatusIs;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::SimLinkNode;
using testing::SimLinks;
using ::testing::SizeIs;

class NodeLinksTest : public ::testing::Test {
 protected:
  // Every message arrived once, in order, with its bytes.
  void ExpectNoViolations() {
    for (const auto& node : world_.nodes()) EXPECT_THAT(node->checker.violations, IsEmpty());
  }
  void SendMany(SimLinkNode& from, SimLinkNode& to, int messages, size_t bytes) {
    for (int i = 0; i < messages; ++i) PHALANX_EXPECT_OK(from.Send(to.peer(), bytes + i));
  }

  SimLinks world_;
  SimLinkNode& a_ = world_.Add("a");
  SimLinkNode& b_ = world_.Add("b");
};

TEST_F(NodeLinksTest, MessagesArriveOnceAndInOrderBothWays) {
  SendMany(a_, b_, 100, 0);
  SendMany(b_, a_, 100, 950);
  PHALANX_EXPECT_OK(a_.Send(b_.peer(), NodeLinks::kMaxPayloadBytes));
  world_.RunFor(absl::Seconds(2));
  ExpectNoViolations();
  EXPECT_EQ(b_.Received(a_.key()), 101u);
  EXPECT_EQ(a_.Received(b_.key()), 100u);
  EXPECT_EQ(a_.links().stats().queued_bytes, 0u);
  EXPECT_EQ(a_.Kept() + b_.Kept(), 0u);
}

TEST_F(NodeLinksTest, OfTwoDialsAtTheSameTimeOneConnectionSurvives) {
  SendMany(a_, b_, 1, 10);
  SendMany(b_, a_, 1, 10);
  world_.RunFor(absl::Seconds(1));
  ExpectNoViolations();
  EXPECT_EQ(a_.Received(b_.key()), 1u);
  EXPECT_EQ(b_.Received(a_.key()), 1u);
  EXPECT_EQ(a_.links().stats().connects, 1u);
  EXPECT_EQ(b_.links().stats().connects, 1u);
  EXPECT_EQ(world_.fabric().open_connections(), 1u);
}

TEST_F(NodeLinksTest, AMessageOverAWarmLinkTakesOneWayOfTheWire) {
  SendMany(a_, b_, 1, 10);
  world_.RunFor(absl::Seconds(1));
  const Instant start = world_.scheduler().now();
  Instant arrived;
  b_.checker.on_message = [&](const NodeKey&) { arrived = world_.scheduler().now(); };
  SendMany(a_, b_, 1, 10);
  world_.RunFor(absl::Seconds(1));
  EXPECT_EQ(arrived - start, absl::Microseconds(50));
}

TEST_F(NodeLinksTest, AnIdleLinkSendsNothing) {
  SendMany(a_, b_, 1, 10);
  world_.RunFor(absl::Seconds(1));
  const uint64_t there = world_.fabric().BytesCarried("a", "b");
  const uint64_t back = world_.fabric().BytesCarried("b", "a");
  const uint64_t steps = world_.scheduler().steps();
  world_.RunFor(absl::Hours(1));
  EXPECT_EQ(world_.fabric().BytesCarried("a", "b"), there);
  EXPECT_EQ(world_.fabric().BytesCarried("b", "a"), back);
  EXPECT_LE(world_.scheduler().steps() - steps, 10u);
  EXPECT_EQ(a_.links().stats().connections, 1);
}

TEST_F(NodeLinksTest, ABrokenConnectionGoesOnWhereItBroke) {
  world_.fabric().SetLink("a", "b", {.bytes_per_second = 10e6});
  SendMany(a_, b_, 3, 1 << 20);
  for (int i = 0; i < 20; ++i) {
    world_.RunFor(absl::Milliseconds(13));
    world_.fabric().Reset("a", "b");
  }
  world_.RunFor(absl::Seconds(3));
  ExpectNoViolations();
  EXPECT_EQ(b_.Received(a_.key()), 3u);
  // Nothing was sent again but what was in flight.
  EXPECT_LE(world_.fabric().BytesCarried("a", "b"), (3u << 20) + 21 * (300 << 10));
}

TEST_F(NodeLinksTest, AConnectionThatIsSilentIsReplaced) {
  SendMany(a_, b_, 1, 10);
  world_.RunFor(absl::Seconds(1));
  world_.fabric().HalfOpen("a", "b");
  SendMany(a_, b_, 5, 10);
  world_.RunFor(absl::Seconds(1));
  EXPECT_EQ(b_.Received(a_.key()), 1u);
  world_.RunFor(absl::Seconds(2));
  EXPECT_EQ(b_.Received(a_.key()), 6u);
  ExpectNoViolations();
}

TEST_F(NodeLinksTest, APeerThatIsAwayIsDialedUntilItComes) {
  world_.fabric().PartitionBothWays("a", "b");
  SendMany(a_, b_, 3, 10);
  world_.RunFor(absl::Minutes(5));
  EXPECT_EQ(b_.Received(a_.key()), 0u);
  world_.fabric().HealAll();
  world_.RunFor(absl::Seconds(2));
  EXPECT_EQ(b_.Received(a_.key()), 3u);
  EXPECT_THAT(a_.checker.lost, IsEmpty());
  ExpectNoViolations();
}

TEST_F(NodeLinksTest, ForgetEndsTheLinkOnBothSidesAndTheNextMessageBeginsANewOne) {
  SendMany(a_, b_, 3, 10);
  world_.RunFor(absl::Seconds(1));
  a_.links().Forget(b_.key());
  EXPECT_THAT(a_.links().Send(b_.peer(), LinkService::kMessages, "", "", nullptr),
              StatusIs(absl::StatusCode::kUnavailable));
  world_.RunFor(absl::Seconds(1));
  EXPECT_THAT(a_.checker.lost[b_.key()], SizeIs(1));
  ASSERT_THAT(b_.checker.lost[a_.key()], SizeIs(1));
  EXPECT_THAT(b_.checker.lost[a_.key()][0],
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr(a_.key().ToString())));
  SendMany(b_, a_, 2, 10);
  SendMany(a_, b_, 2, 10);
  world_.RunFor(absl::Seconds(1));
  EXPECT_EQ(a_.Received(b_.key()), 2u);
  EXPECT_EQ(b_.Received(a_.key()), 5u);
  ExpectNoViolations();
}

TEST_F(NodeLinksTest, APeerThatCouldNotBeToldOfForgetLearnsOfItWhenItDials) {
  SendMany(b_, a_, 3, 10);
  world_.RunFor(absl::Seconds(1));
  world_.fabric().PartitionBothWays("a", "b");
  SendMany(b_, a_, 2, 10);
  a_.links().Forget(b_.key());
  world_.RunFor(absl::Seconds(10));
  world_.fabric().HealAll();
  world_.RunFor(absl::Seconds(10));
  EXPECT_THAT(b_.checker.lost[a_.key()], SizeIs(1));
  EXPECT_EQ(b_.links().stats().queued_bytes, 0u);
  ExpectNoViolations();
}

// a has received b's message, and forgets b before the acknowledgement leaves. Returns whether b
// learns that this session is over.
class NodeLinksSessionTest : public NodeLinksTest {
 protected:
  bool BLearnsOfTheLoss() {
    a_.checker.on_message = [&](const NodeKey&) {
      world_.fabric().PartitionBothWays("a", "b");
      a_.links().Forget(b_.key());
    };
    SendMany(b_, a_, 1, 10);
    world_.RunFor(absl::Milliseconds(100));
    a_.checker.on_message = nullptr;
    world_.fabric().Reset("a", "b");
    world_.fabric().HealAll();
    SendMany(a_, b_, 1, 10);
    world_.RunFor(absl::Seconds(5));
    return b_.checker.lost.contains(a_.key()) && a_.checker.violations.empty() &&
           a_.Received(b_.key()) == 1;
  }
};

TEST_F(NodeLinksSessionTest, AMessageOfASessionThatIsOverDoesNotArriveInTheNextOne) {
  EXPECT_TRUE(BLearnsOfTheLoss());
}

TEST_F(NodeLinksSessionTest, DetectsSessionsThatAreNotCompared) {
  const ::phalanx::testing::ScopedDefect defect(Defect::kLinkSessionNotCompared);
  EXPECT_FALSE(BLearnsOfTheLoss());
}

TEST_F(NodeLinksTest, ANewIncarnationReplacesTheOldOne) {
  SendMany(a_, b_, 1, 10);
  world_.RunFor(absl::Seconds(1));
  b_.Kill();
  SendMany(a_, b_, 1, 5001);
  SimLinkNode& again = world_.Add("b", {}, {b_.key().node, 2});
  world_.RunFor(absl::Seconds(2));
  ASSERT_THAT(a_.checker.lost[b_.key()], SizeIs(1));
  EXPECT_THAT(a_.checker.lost[b_.key()][0],
              StatusIs(absl::StatusCode::kAborted, HasSubstr("restarted")));
  EXPECT_EQ(a_.Kept(), 0u);
  PHALANX_EXPECT_OK(a_.Send(again.peer(), 10));
  world_.RunFor(absl::Seconds(1));
  EXPECT_EQ(again.Received(a_.key()), 1u);
  EXPECT_THAT(a_.Send(b_.peer(), 10), StatusIs(absl::StatusCode::kUnavailable));
  ExpectNoViolations();
}

TEST_F(NodeLinksTest, AMessageWithoutAPlaceGivesTheLinkUp) {
  b_.checker.refuse_place = absl::NotFoundError("unknown group");
  SendMany(a_, b_, 1, 10);
  world_.RunFor(absl::Seconds(1));
  EXPECT_THAT(b_.checker.lost[a_.key()], SizeIs(1));
  ASSERT_THAT(a_.checker.lost[b_.key()], SizeIs(1));
  EXPECT_THAT(a_.checker.lost[b_.key()][0],
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr("unknown group")));
}

TEST_F(NodeLinksTest, ReceiversMaySendAndForgetWithinTheirCallbacks) {
  b_.checker.on_message = [&](const NodeKey&) {
    if (b_.checker.Received(a_.key()) == 3) return b_.links().Forget(a_.key());
    PHALANX_EXPECT_OK(b_.Send(a_.peer(), 10));
  };
  a_.checker.on_message = [&](const NodeKey&) { SendMany(a_, b_, 1, 2000); };
  SendMany(a_, b_, 1, 10);
  world_.RunFor(absl::Seconds(1));
  EXPECT_EQ(a_.Received(b_.key()), 2u);
  EXPECT_EQ(b_.Received(a_.key()), 3u);
  EXPECT_THAT(a_.checker.lost[b_.key()], SizeIs(1));
  EXPECT_THAT(b_.checker.lost[a_.key()], SizeIs(1));
  ExpectNoViolations();
}

TEST_F(NodeLinksTest, RefusesWhatIsTooLongAndMessagesToItself) {
  const auto send = [&](const LinkPeer& to, size_t header, size_t payload, bool keep) {
    const auto bytes = std::make_shared<std::string>(payload, 'x');
    return a_.links().Send(to, LinkService::kMessages, std::string(header, 'h'), *bytes,
                           keep ? bytes : nullptr);
  };
  EXPECT_THAT(send(b_.peer(), NodeLinks::kMaxHeaderBytes + 1, 0, false),
              StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(send(b_.peer(), 1, NodeLinks::kMaxUnplacedBytes + 1, false),
              StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(send(b_.peer(), 1, NodeLinks::kMaxPayloadBytes + 1, true),
              StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(send(a_.peer(), 1, 0, false), StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_EQ(a_.links().stats().links, 0);
}

TEST_F(NodeLinksTest, ALinkHoldsAtMostItsLimitOfMessages) {
  world_.fabric().PartitionBothWays("a", "b");
  for (size_t i = 0; i < NodeLinks::kMaxQueuedMessages; ++i) {
    PHALANX_ASSERT_OK(a_.links().Send(b_.peer(), LinkService::kMessages, "", "", nullptr));
  }
  EXPECT_THAT(a_.links().Send(b_.peer(), LinkService::kMessages, "", "", nullptr),
              StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr(b_.key().ToString())));
}

TEST_F(NodeLinksTest, APeerThatHasEndedIsNotDialedAgain) {
  const auto ended = std::make_shared<bool>(false);
  NodeLinksOptions options;
  options.ended = [ended](const NodeKey&) { return *ended; };
  SimLinkNode& c = world_.Add("c", options);
  b_.Kill();
  PHALANX_EXPECT_OK(c.Send(b_.peer(), 5001));
  world_.RunFor(absl::Minutes(1));
  EXPECT_THAT(c.checker.lost, IsEmpty());
  EXPECT_EQ(c.Kept(), 1u);
  *ended = true;
  world_.RunFor(absl::Seconds(5));
  ASSERT_THAT(c.checker.lost[b_.key()], SizeIs(1));
  EXPECT_THAT(c.checker.lost[b_.key()][0],
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr("has ended")));
  EXPECT_EQ(c.Kept(), 0u);
  EXPECT_FALSE(c.links().Contains(b_.key()));
}

TEST_F(NodeLinksTest, APeerThatHasEndedIsNotDialedAtTheAddressOfAnotherNode) {
  const auto ended = std::make_shared<bool>(false);
  NodeLinksOptions options;
  options.ended = [ended](const NodeKey&) { return *ended; };
  SimLinkNode& c = world_.Add("c", options);
  LinkPeer gone = a_.peer();
  gone.key = b_.key();
  PHALANX_EXPECT_OK(c.Send(gone, 5001));
  world_.RunFor(absl::Minutes(1));
  EXPECT_EQ(c.Kept(), 1u);
  *ended = true;
  world_.RunFor(absl::Seconds(5));
  EXPECT_THAT(c.checker.lost[b_.key()], SizeIs(1));
  EXPECT_EQ(c.Kept(), 0u);
  EXPECT_EQ(a_.Received(c.key()), 0u);
}

TEST_F(NodeLinksTest, AtTheLimitOfLinksThoseWithPeersThatHaveEndedMakeRoom) {
  NodeLinksOptions options;
  options.max_links = 2;
  options.ended = [ended = b_.key()](const NodeKey& peer) { return peer == ended; };
  SimLinkNode& c = world_.Add("c", options);
  SimLinkNode& d = world_.Add("d");
  SendMany(c, a_, 1, 10);
  SendMany(c, b_, 1, 10);
  world_.RunFor(absl::Seconds(1));
  // The link with b was used a moment ago.
  EXPECT_THAT(c.links().Send(d.peer(), LinkService::kMessages, "", "", nullptr),
              StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("2 others")));
  world_.RunFor(kKeepIdleLink);
  SendMany(c, d, 1, 10);
  world_.RunFor(absl::Seconds(1));
  EXPECT_EQ(d.Received(c.key()), 1u);
  EXPECT_THAT(c.checker.lost[b_.key()], SizeIs(1));
  EXPECT_THAT(c.checker.lost[a_.key()], IsEmpty());
  EXPECT_EQ(c.links().stats().links, 2);
  ExpectNoViolations();
}

TEST_F(NodeLinksTest, APeerWithAnotherSecretGetsNoLink) {
  NodeLinksOptions options;
  options.handshake.secret = "other";
  SimLinkNode& stranger = world_.Add("c", options);
  PHALANX_EXPECT_OK(stranger.Send(a_.peer(), 10));
  world_.RunFor(absl::Seconds(5));
  EXPECT_EQ(a_.Received(stranger.key()), 0u);
  EXPECT_EQ(a_.links().stats().links, 0);
}

}  // namespace
}  // namespace phalanx::net
