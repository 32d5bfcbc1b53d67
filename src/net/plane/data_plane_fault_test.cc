// The data plane under faults: refusals, ends of generations, cancelled pulls, and connections that
// break, fall silent or send wrong bytes.
#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "src/common/random.h"
#include "src/common/testing/scoped_defect.h"
#include "src/common/testing/seed.h"
#include "src/common/testing/status_matchers.h"
#include "src/net/plane/data_plane.h"
#include "src/net/testing/corrupting_network.h"
#include "src/net/testing/sim_plane.h"

namespace phalanx::net {
namespace {

using ::phalanx::testing::ScopedDefect;
using ::phalanx::testing::StatusIs;
using ::testing::AllOf;
using testing::CorruptingNetwork;
using testing::EmptyBuffer;
using testing::FirstWrongByte;
using testing::Gen;
using testing::Grow;
using ::testing::HasSubstr;
using testing::Id;
using testing::SimPlane;
using testing::SimPlanes;
using testing::StartedPull;
using testing::WholeBuffer;

constexpr uint64_t kMiB = uint64_t{1} << 20;

sim::SimFabric::Options FastLinks() {
  sim::SimFabric::Options options;
  options.link = {.latency = absl::Microseconds(100), .bytes_per_second = 1e9};
  return options;
}

class DataPlaneFaultTest : public ::testing::Test {
 protected:
  void ExpectEndsWith(const StartedPull& pull, absl::StatusCode code,
                      absl::Duration limit = absl::Seconds(60)) {
    ASSERT_TRUE(world_.RunUntilDone(pull, limit));
    EXPECT_THAT(pull.status(), StatusIs(code));
    if (pull.into != nullptr) {
      EXPECT_EQ(FirstWrongByte(*pull.into), std::nullopt);
    }
  }

  SimPlanes world_{FastLinks()};
};

// Refusals.

TEST_F(DataPlaneFaultTest, AMissingObjectIsNotFound) {
  SimPlane& a = world_.Add("a");
  SimPlane& b = world_.Add("b");
  const StartedPull pull = b.Pull(a, Id(1), EmptyBuffer(10));
  ExpectEndsWith(pull, absl::StatusCode::kNotFound);
  EXPECT_THAT(pull.status().message(),
              AllOf(HasSubstr(Id(1).ShortHex()), HasSubstr(a.self().ToString())));
}

TEST_F(DataPlaneFaultTest, AnotherGenerationIsNotFound) {
  SimPlane& a = world_.Add("a");
  SimPlane& b = world_.Add("b");
  a.shelf.Put(Id(1), Gen(2), WholeBuffer(10));
  ExpectEndsWith(b.Pull(a, Id(1), EmptyBuffer(10), 1, Gen(1)), absl::StatusCode::kNotFound);
}

TEST_F(DataPlaneFaultTest, ARefusalKeepsTheConnection) {
  SimPlane& a = world_.Add("a");
  SimPlane& b = world_.Add("b");
  ExpectEndsWith(b.Pull(a, Id(1), EmptyBuffer(10)), absl::StatusCode::kNotFound);
  a.shelf.Put(Id(1), Gen(), WholeBuffer(10));
  ExpectEndsWith(b.Pull(a, Id(1), EmptyBuffer(10)), absl::StatusCode::kOk);
  EXPECT_EQ(a.plane().stats().connections, 1);
}

TEST_F(DataPlaneFaultTest, AnObjectOfAnotherSizeOrCutIsRefused) {
  SimPlane& a = world_.Add("a");
  SimPlane& b = world_.Add("b");
  a.shelf.Put(Id(1), Gen(), WholeBuffer(1000, 2));
  ExpectEndsWith(b.Pull(a, Id(1), EmptyBuffer(1001, 2)), absl::StatusCode::kDataLoss);
  ExpectEndsWith(b.Pull(a, Id(1), EmptyBuffer(1000, 1)), absl::StatusCode::kDataLoss);
  ExpectEndsWith(b.Pull(a, Id(1), EmptyBuffer(1000, 3)), absl::StatusCode::kUnavailable);
}

TEST_F(DataPlaneFaultTest, AnotherIncarnationAtTheAddressIsUnavailable) {
  SimPlane& a = world_.Add("a");
  SimPlane& b = world_.Add("b");
  a.shelf.Put(Id(1), Gen(), WholeBuffer(10));
  const NodeKey earlier = {a.self().node, a.self().incarnation - 1};
  ExpectEndsWith(b.Pull({earlier, a.address(), Id(1), Gen(), EmptyBuffer(10)}),
                 absl::StatusCode::kUnavailable);
  EXPECT_EQ(a.shelf.requests(), 0);
}

TEST_F(DataPlaneFaultTest, AnAddressWithoutAListenerIsUnavailable) {
  SimPlane& a = world_.Add("a");
  SimPlane& b = world_.Add("b");
  ExpectEndsWith(b.Pull({a.self(), "a:1", Id(1), Gen(), EmptyBuffer(10)}),
                 absl::StatusCode::kUnavailable);
  ExpectEndsWith(b.Pull({a.self(), "not an address", Id(1), Gen(), EmptyBuffer(10)}),
                 absl::StatusCode::kUnavailable);
}

TEST_F(DataPlaneFaultTest, AnUnreachablePeerEndsThePullAfterTheConnectTimeout) {
  SimPlane& a = world_.Add("a");
  SimPlane& b = world_.Add("b");
  world_.fabric().PartitionBothWays("a", "b");
  const StartedPull pull = b.Pull(a, Id(1), EmptyBuffer(10));
  EXPECT_NEAR(absl::ToDoubleSeconds(world_.TimeUntilDone(pull)), 2, 0.01);
  EXPECT_THAT(pull.status(), StatusIs(absl::StatusCode::kDeadlineExceeded));
}

TEST_F(DataPlaneFaultTest, APullThatOnlyConnectsFailsAsOthersDo) {
  SimPlane& a = world_.Add("a");
  SimPlane& b = world_.Add("b");
  const NodeKey earlier = {a.self().node, a.self().incarnation - 1};
  ExpectEndsWith(b.Pull({earlier, a.address(), {}, {}, nullptr, 0}),
                 absl::StatusCode::kUnavailable);
  ExpectEndsWith(b.Pull({a.self(), "a:1", {}, {}, nullptr, 0}), absl::StatusCode::kUnavailable);
  // An idle connection does not hide that the peer cannot be reached now.
  world_.fabric().PartitionBothWays("a", "b");
  const StartedPull cut = b.Pull({a.self(), a.address(), {}, {}, nullptr, 0});
  world_.RunFor(absl::Milliseconds(100));
  EXPECT_FALSE(cut.done());
  b.plane().CancelPull(cut.handle);
  ExpectEndsWith(cut, absl::StatusCode::kCancelled);
}

TEST_F(DataPlaneFaultTest, APeerWithoutAHandshakeEndsThePullAfterTheConnectTimeout) {
  SimPlane& a = world_.Add("a");
  SimPlane& b = world_.Add("b");
  std::vector<std::unique_ptr<ByteStream>> silent;
  const auto listener = a.network().Listen(
      a.control(), "0.0.0.0:9999", [&]() -> Executor& { return a.control(); },
      [&](Executor&, std::unique_ptr<ByteStream> s) { silent.push_back(std::move(s)); });
  const StartedPull pull = b.Pull({a.self(), "a:9999", Id(1), Gen(), EmptyBuffer(10)});
  EXPECT_NEAR(absl::ToDoubleSeconds(world_.TimeUntilDone(pull)), 2, 0.01);
  EXPECT_THAT(pull.status(), StatusIs(absl::StatusCode::kDeadlineExceeded));
}

TEST_F(DataPlaneFaultTest, AnotherSecretOrClusterOrVersionIsDenied) {
  DataPlaneOptions ours;
  ours.handshake.secret = "ours";
  SimPlane& a = world_.Add("a", ours);
  a.shelf.Put(Id(1), Gen(), WholeBuffer(10));
  DataPlaneOptions theirs = ours;
  theirs.handshake.secret = "theirs";
  DataPlaneOptions none = ours;
  none.handshake.secret = "";
  DataPlaneOptions elsewhere = ours;
  elsewhere.handshake.cluster_id = "elsewhere";
  DataPlaneOptions newer = ours;
  newer.handshake.protocol_version = kProtocolVersion + 1;
  int n = 0;
  for (const DataPlaneOptions& options : {theirs, none, elsewhere, newer}) {
    SimPlane& peer = world_.Add(absl::StrCat("peer", n++), options);
    ExpectEndsWith(peer.Pull(a, Id(1), EmptyBuffer(10)), absl::StatusCode::kPermissionDenied);
    EXPECT_EQ(peer.plane().stats().handshakes_refused, 1u);
  }
  world_.RunFor(absl::Seconds(10));
  EXPECT_EQ(a.plane().stats().handshakes_refused, 4u);
  EXPECT_EQ(a.plane().stats().connections, 0);
  EXPECT_EQ(a.shelf.requests(), 0);
  ExpectEndsWith(world_.Add("b", ours).Pull(a, Id(1), EmptyBuffer(10)), absl::StatusCode::kOk);
}

// A generation dies.

TEST_F(DataPlaneFaultTest, AbortedPushesEndWithTheReason) {
  SimPlane& a = world_.Add("a");
  SimPlane& b = world_.Add("b");
  a.shelf.Put(Id(1), Gen(), EmptyBuffer(100));
  a.shelf.Put(Id(2), Gen(), EmptyBuffer(100));
  const StartedPull doomed = b.Pull(a, Id(1), EmptyBuffer(100));
  const StartedPull other = b.Pull(a, Id(2), EmptyBuffer(100));
  world_.RunFor(absl::Milliseconds(10));
  a.plane().AbortPushes(Id(1), Gen(), absl::NotFoundError("deleted by its owner"));
  ExpectEndsWith(doomed, absl::StatusCode::kAborted);
  EXPECT_THAT(doomed.status().message(), HasSubstr("deleted by its owner"));
  world_.RunFor(absl::Seconds(1));
  EXPECT_FALSE(other.done());
  EXPECT_EQ(a.shelf.pins(), 1);
  EXPECT_EQ(a.plane().stats().connections, 2) << "both can be used again";
}

TEST_F(DataPlaneFaultTest, APushIsAbortedBetweenItsBytes) {
  SimPlane& a = world_.Add("a");
  SimPlane& b = world_.Add("b");
  a.shelf.Put(Id(1), Gen(), WholeBuffer(64 * kMiB));
  const StartedPull pull = b.Pull(a, Id(1), EmptyBuffer(64 * kMiB));
  world_.RunFor(absl::Milliseconds(10));
  a.plane().AbortPushes(Id(1), Gen(), absl::AbortedError("superseded"));
  ExpectEndsWith(pull, absl::StatusCode::kAborted, absl::Milliseconds(5));
  EXPECT_GT(pull.into->watermark(0), 0u);
  EXPECT_EQ(a.shelf.pins(), 0);
}

TEST_F(DataPlaneFaultTest, ABufferThatIsClosedEndsItsPushes) {
  SimPlane& a = world_.Add("a");
  SimPlane& b = world_.Add("b");
  auto source = EmptyBuffer(100);
  a.shelf.Put(Id(1), Gen(), source);
  const StartedPull pull = b.Pull(a, Id(1), EmptyBuffer(100));
  world_.RunFor(absl::Milliseconds(10));
  source->Close(absl::DataLossError("the writer died"));
  ExpectEndsWith(pull, absl::StatusCode::kAborted, absl::Milliseconds(5));
  EXPECT_THAT(pull.status().message(), HasSubstr("the writer died"));
}

TEST_F(DataPlaneFaultTest, ABufferClosedWithoutErrorBeforeItIsFullEndsItsPushesToo) {
  SimPlane& a = world_.Add("a");
  SimPlane& b = world_.Add("b");
  auto source = EmptyBuffer(100);
  Grow(*source, 0, 50);
  source->Close(absl::OkStatus());
  a.shelf.Put(Id(1), Gen(), source);
  const StartedPull pull = b.Pull(a, Id(1), EmptyBuffer(100));
  ExpectEndsWith(pull, absl::StatusCode::kAborted, absl::Milliseconds(5));
  EXPECT_EQ(pull.into->watermark(0), 50u);
}

TEST_F(DataPlaneFaultTest, ABufferClosedOnTheReceiversSideEndsThePull) {
  SimPlane& a = world_.Add("a");
  SimPlane& b = world_.Add("b");
  a.shelf.Put(Id(1), Gen(), WholeBuffer(64 * kMiB));
  const StartedPull pull = b.Pull(a, Id(1), EmptyBuffer(64 * kMiB));
  world_.RunFor(absl::Milliseconds(10));
  pull.into->Close(absl::AbortedError("deleted here"));
  const uint64_t present = pull.into->bytes_present();
  ExpectEndsWith(pull, absl::StatusCode::kAborted, absl::Milliseconds(5));
  EXPECT_EQ(pull.into->bytes_present(), present);
}

// Cancelled pulls.

TEST_F(DataPlaneFaultTest, APullCanBeCancelledAtEveryPoint) {
  SimPlane& a = world_.Add("a");
  SimPlane& b = world_.Add("b");
  a.shelf.Put(Id(1), Gen(), WholeBuffer(kMiB));
  int cancelled = 0;
  for (int step = 0; step < 250; ++step) {
    const StartedPull pull = b.Pull(a, Id(1), EmptyBuffer(kMiB));
    world_.RunFor(absl::Microseconds(8) * step);
    b.plane().CancelPull(pull.handle);
    ASSERT_TRUE(world_.RunUntilDone(pull, absl::Milliseconds(1))) << "step " << step;
    cancelled += absl::IsCancelled(pull.status()) ? 1 : 0;
    // Nothing is written after `done`, although bytes are still in transit.
    const std::vector<char> then(pull.into->slice(0).begin(), pull.into->slice(0).end());
    world_.RunFor(absl::Milliseconds(3));
    ASSERT_EQ(pull.into->bytes_present(), *pull.present_at_done);
    ASSERT_TRUE(std::equal(then.begin(), then.end(), pull.into->slice(0).begin()));
    ASSERT_EQ(FirstWrongByte(*pull.into), std::nullopt);
    ASSERT_EQ(a.shelf.pins(), 0) << "step " << step;
  }
  EXPECT_GT(cancelled, 150);
  EXPECT_LT(cancelled, 250);
}

TEST_F(DataPlaneFaultTest, TheConnectionOfACancelledPullIsUsedAgain) {
  SimPlane& a = world_.Add("a");
  SimPlane& b = world_.Add("b");
  a.shelf.Put(Id(1), Gen(), WholeBuffer(64 * kMiB));
  ASSERT_TRUE(world_.RunUntilDone(b.Pull(a, Id(2), EmptyBuffer(1))));
  for (int i = 0; i < 20; ++i) {
    const StartedPull pull = b.Pull(a, Id(1), EmptyBuffer(64 * kMiB));
    world_.RunFor(absl::Microseconds(250 * i));
    b.plane().CancelPull(pull.handle);
    ExpectEndsWith(pull, absl::StatusCode::kCancelled);
    world_.RunFor(absl::Milliseconds(3));
    ASSERT_EQ(a.plane().stats().connections, 1) << i;
    ASSERT_EQ(b.plane().stats().connections, 1) << i;
  }
  const StartedPull whole = b.Pull(a, Id(1), EmptyBuffer(64 * kMiB));
  ExpectEndsWith(whole, absl::StatusCode::kOk);
  EXPECT_GT(b.plane().stats().bytes_wasted, 0u);
  EXPECT_EQ(a.plane().stats().connections, 1);
}

TEST_F(DataPlaneFaultTest, APullOfAStarvedSenderIsCancelledToo) {
  SimPlane& a = world_.Add("a");
  SimPlane& b = world_.Add("b");
  a.shelf.Put(Id(1), Gen(), EmptyBuffer(100));
  const StartedPull pull = b.Pull(a, Id(1), EmptyBuffer(100));
  world_.RunFor(absl::Seconds(1));
  b.plane().CancelPull(pull.handle);
  ExpectEndsWith(pull, absl::StatusCode::kCancelled, absl::Milliseconds(1));
  world_.RunFor(absl::Milliseconds(2));
  EXPECT_EQ(a.shelf.pins(), 0);
  EXPECT_EQ(a.plane().stats().connections, 1);
}

TEST_F(DataPlaneFaultTest, CancellingAnEndedPullDoesNothing) {
  SimPlane& a = world_.Add("a");
  SimPlane& b = world_.Add("b");
  a.shelf.Put(Id(1), Gen(), WholeBuffer(10));
  const StartedPull pull = b.Pull(a, Id(1), EmptyBuffer(10));
  ExpectEndsWith(pull, absl::StatusCode::kOk);
  b.plane().CancelPull(pull.handle);
  b.plane().CancelPull(4711);
  world_.RunFor(absl::Milliseconds(10));
  PHALANX_EXPECT_OK(pull.status());
}

TEST_F(DataPlaneFaultTest, ACancelledPullClosesTheConnectionOfASilentSender) {
  SimPlane& a = world_.Add("a");
  SimPlane& b = world_.Add("b");
  a.shelf.Put(Id(1), Gen(), EmptyBuffer(100));
  const StartedPull pull = b.Pull(a, Id(1), EmptyBuffer(100));
  world_.RunFor(absl::Milliseconds(10));
  world_.fabric().HalfOpen("a", "b");
  b.plane().CancelPull(pull.handle);
  ExpectEndsWith(pull, absl::StatusCode::kCancelled, absl::Milliseconds(1));
  world_.RunFor(absl::Seconds(1));
  EXPECT_EQ(b.plane().stats().connections, 0);
}

// Connections break.

TEST_F(DataPlaneFaultTest, APullOverABrokenConnectionIsUnavailableAndCanBeResumed) {
  SimPlane& a = world_.Add("a");
  SimPlane& b = world_.Add("b");
  a.shelf.Put(Id(1), Gen(), WholeBuffer(16 * kMiB));
  auto into = EmptyBuffer(16 * kMiB);
  uint64_t received = 0;
  for (int i = 0; i < 5; ++i) {
    const StartedPull pull = b.Pull(a, Id(1), into);
    world_.RunFor(absl::Milliseconds(3));
    world_.fabric().Reset("a", "b");
    ExpectEndsWith(pull, absl::StatusCode::kUnavailable, absl::Milliseconds(1));
    received += (*pull.outcome)->bytes_received;
    EXPECT_EQ(received, into->watermark(0));
  }
  const StartedPull rest = b.Pull(a, Id(1), into);
  ExpectEndsWith(rest, absl::StatusCode::kOk);
  EXPECT_EQ((*rest.outcome)->bytes_received + received, 16 * kMiB);
  world_.RunFor(absl::Seconds(1));
  EXPECT_EQ(a.shelf.pins(), 0);
}

TEST_F(DataPlaneFaultTest, ASilentSenderEndsThePullAfterTheStallTimeout) {
  SimPlane& a = world_.Add("a");
  SimPlane& b = world_.Add("b");
  a.shelf.Put(Id(1), Gen(), EmptyBuffer(100));
  const StartedPull pull = b.Pull(a, Id(1), EmptyBuffer(100));
  world_.RunFor(absl::Seconds(10));
  ASSERT_FALSE(pull.done());
  world_.fabric().HalfOpen("a", "b");
  EXPECT_LE(world_.TimeUntilDone(pull), absl::Milliseconds(501));
  EXPECT_THAT(pull.status(), StatusIs(absl::StatusCode::kDeadlineExceeded));
}

TEST_F(DataPlaneFaultTest, ASenderThatFallsSilentEndsThePullToo) {
  SimPlane& a = world_.Add("a");
  SimPlane& b = world_.Add("b");
  a.shelf.Put(Id(1), Gen(), WholeBuffer(64 * kMiB));
  const StartedPull pull = b.Pull(a, Id(1), EmptyBuffer(64 * kMiB));
  world_.RunFor(absl::Milliseconds(10));
  world_.fabric().HalfOpen("a", "b");
  EXPECT_NEAR(absl::ToDoubleMilliseconds(world_.TimeUntilDone(pull)), 500, 5);
  EXPECT_THAT(pull.status(), StatusIs(absl::StatusCode::kDeadlineExceeded));
  EXPECT_EQ(FirstWrongByte(*pull.into), std::nullopt);
}

TEST_F(DataPlaneFaultTest, ASenderFarAwayHasTwoRoundTripsMore) {
  SimPlane& a = world_.Add("a");
  SimPlane& b = world_.Add("b");
  world_.fabric().SetLink("a", "b", {.latency = absl::Milliseconds(72)});
  world_.fabric().SetLink("b", "a", {.latency = absl::Milliseconds(73)});
  a.shelf.Put(Id(1), Gen(), WholeBuffer(64 * kMiB));
  const StartedPull pull = b.Pull(a, Id(1), EmptyBuffer(64 * kMiB));
  world_.RunFor(absl::Milliseconds(600));
  world_.fabric().HalfOpen("a", "b");
  // The last byte before it came up to a round trip earlier.
  const absl::Duration silence = world_.TimeUntilDone(pull);
  EXPECT_GT(silence, absl::Milliseconds(500 + 145));
  EXPECT_LE(silence, absl::Milliseconds(500 + 2 * 145));
  EXPECT_THAT(pull.status(), StatusIs(absl::StatusCode::kDeadlineExceeded));
}

TEST_F(DataPlaneFaultTest, AMissedStallWouldBeDetected) {
  const ScopedDefect defect(Defect::kStallNotDetected);
  SimPlane& a = world_.Add("a");
  SimPlane& b = world_.Add("b");
  a.shelf.Put(Id(1), Gen(), EmptyBuffer(100));
  const StartedPull pull = b.Pull(a, Id(1), EmptyBuffer(100));
  world_.RunFor(absl::Milliseconds(10));
  world_.fabric().HalfOpen("a", "b");
  EXPECT_FALSE(world_.RunUntilDone(pull, absl::Seconds(60)));
}

TEST_F(DataPlaneFaultTest, APinIsNotHeldForADeadReceiver) {
  SimPlane& a = world_.Add("a");
  SimPlane& b = world_.Add("b");
  a.shelf.Put(Id(1), Gen(), EmptyBuffer(100));
  a.shelf.Put(Id(2), Gen(), WholeBuffer(64 * kMiB));
  const StartedPull starved = b.Pull(a, Id(1), EmptyBuffer(100));
  const StartedPull busy = b.Pull(a, Id(2), EmptyBuffer(64 * kMiB));
  world_.RunFor(absl::Milliseconds(10));
  ASSERT_EQ(a.shelf.pins(), 2);
  // Nothing passes in either direction, and the sender gets no error.
  world_.fabric().HalfOpen("a", "b");
  world_.fabric().HalfOpen("b", "a");
  world_.RunFor(absl::Milliseconds(2400));
  EXPECT_EQ(a.shelf.pins(), 0) << "four stall timeouts, and an interval";
  EXPECT_EQ(a.plane().stats().connections, 0);
}

TEST_F(DataPlaneFaultTest, APausedReceiverIsNotMistakenForAStall) {
  SimPlane& a = world_.Add("a");
  SimPlane& b = world_.Add("b");
  auto source = EmptyBuffer(100);
  a.shelf.Put(Id(1), Gen(), source);
  const StartedPull pull = b.Pull(a, Id(1), EmptyBuffer(100));
  world_.RunFor(absl::Milliseconds(10));
  b.process().Stall();
  world_.RunFor(absl::Milliseconds(1500));
  b.process().Resume();
  world_.RunFor(absl::Milliseconds(200));
  EXPECT_FALSE(pull.done());
  Grow(*source, 0, 100);
  ExpectEndsWith(pull, absl::StatusCode::kOk);
}

TEST_F(DataPlaneFaultTest, APooledConnectionFoundDeadIsReplacedOnce) {
  DataPlaneOptions short_idle;
  short_idle.idle_timeout = absl::Milliseconds(100);
  SimPlane& a = world_.Add("a", short_idle);
  SimPlane& b = world_.Add("b");
  a.shelf.Put(Id(1), Gen(), WholeBuffer(100));
  ExpectEndsWith(b.Pull(a, Id(1), EmptyBuffer(100)), absl::StatusCode::kOk);
  // The peer closes, and its end of file does not arrive before the next request.
  world_.fabric().Partition("a", "b");
  world_.RunFor(absl::Milliseconds(200));
  ASSERT_EQ(a.plane().stats().connections, 0);
  ASSERT_EQ(b.plane().stats().connections, 1);
  const StartedPull pull = b.Pull(a, Id(1), EmptyBuffer(100));
  world_.RunFor(absl::Milliseconds(10));
  EXPECT_FALSE(pull.done());
  world_.fabric().HealAll();
  ExpectEndsWith(pull, absl::StatusCode::kOk, absl::Milliseconds(5));
}

TEST_F(DataPlaneFaultTest, AnIdleConnectionThatClosesIsDropped) {
  SimPlane& a = world_.Add("a");
  SimPlane& b = world_.Add("b");
  a.shelf.Put(Id(1), Gen(), WholeBuffer(100));
  ExpectEndsWith(b.Pull(a, Id(1), EmptyBuffer(100)), absl::StatusCode::kOk);
  world_.fabric().Reset("a", "b");
  world_.RunFor(absl::Milliseconds(1));
  EXPECT_EQ(b.plane().stats().connections, 0);
  ExpectEndsWith(b.Pull(a, Id(1), EmptyBuffer(100)), absl::StatusCode::kOk);
}

// Unknown peers.

class UnknownPeer {
 public:
  UnknownPeer(SimPlanes& world, SimPlane& from, const Address& to) : world_(world) {
    from.network().Dial(from.control(), to, Instant::Infinite(),
                        [this](absl::StatusOr<std::unique_ptr<ByteStream>> stream) {
                          stream_ = std::move(stream).value();
                        });
    world_.RunFor(absl::Milliseconds(1));
  }
  void Send(std::string bytes) {
    const iovec part = {bytes.data(), bytes.size()};
    (void)stream_->Write(absl::MakeConstSpan(&part, 1));
    world_.RunFor(absl::Milliseconds(1));
  }
  bool disconnected() {
    char byte;
    const iovec part = {&byte, 1};
    absl::StatusOr<size_t> size = 0;
    // The first bytes of the other side are its hello.
    do {
      size = stream_->Read(absl::MakeConstSpan(&part, 1));
    } while (size.ok() && *size > 0);
    return !size.ok();
  }

 private:
  SimPlanes& world_;
  std::unique_ptr<ByteStream> stream_;
};

TEST_F(DataPlaneFaultTest, ASilentUnknownPeerIsDisconnected) {
  SimPlane& a = world_.Add("a");
  SimPlane& b = world_.Add("b");
  UnknownPeer peer(world_, b, a.address());
  EXPECT_EQ(a.plane().stats().connections, 1);
  world_.RunFor(absl::Seconds(4.9));
  EXPECT_EQ(a.plane().stats().connections, 1);
  world_.RunFor(absl::Seconds(0.2));
  EXPECT_EQ(a.plane().stats().connections, 0);
}

TEST_F(DataPlaneFaultTest, AnUnknownPeerThatSendsGarbageIsDisconnectedAtOnce) {
  SimPlane& a = world_.Add("a");
  SimPlane& b = world_.Add("b");
  UnknownPeer peer(world_, b, a.address());
  peer.Send("GET / HTTP/1.1\r\n\r\n");
  EXPECT_EQ(a.plane().stats().connections, 0);
  EXPECT_EQ(a.plane().stats().handshakes_refused, 1u);
}

TEST_F(DataPlaneFaultTest, UnprovenPeersTakeNoConnectionsFromProvenOnes) {
  DataPlaneOptions few;
  few.max_connections = 4;
  few.max_unproven_connections = 3;
  SimPlane& a = world_.Add("a", few, 2);
  SimPlane& b = world_.Add("b");
  SimPlane& c = world_.Add("c");
  a.shelf.Put(Id(1), Gen(), WholeBuffer(100));
  b.shelf.Put(Id(2), Gen(), WholeBuffer(100));
  std::vector<std::unique_ptr<UnknownPeer>> peers;
  for (int i = 0; i < 20; ++i) {
    peers.push_back(std::make_unique<UnknownPeer>(world_, c, a.address()));
    EXPECT_LE(a.plane().stats().connections, 3 + 4);
  }
  EXPECT_EQ(a.plane().stats().connections, 3) << "of the silent ones, the last";
  ExpectEndsWith(a.Pull(b, Id(2), EmptyBuffer(100)), absl::StatusCode::kOk);
  ExpectEndsWith(b.Pull(a, Id(1), EmptyBuffer(100)), absl::StatusCode::kOk);
  for (int i = 0; i < 20; ++i) {
    peers.push_back(std::make_unique<UnknownPeer>(world_, c, a.address()));
  }
  EXPECT_EQ(a.plane().stats().connections, 3 + 2) << "the proven ones are left alone";
}

TEST_F(DataPlaneFaultTest, TheOldestUnprovenConnectionIsClosedFirst) {
  DataPlaneOptions few;
  few.max_unproven_connections = 2;
  SimPlane& a = world_.Add("a", few);
  SimPlane& c = world_.Add("c");
  UnknownPeer oldest(world_, c, a.address());
  UnknownPeer second(world_, c, a.address());
  UnknownPeer third(world_, c, a.address());
  EXPECT_TRUE(oldest.disconnected());
  EXPECT_FALSE(second.disconnected());
  EXPECT_FALSE(third.disconnected());
}

// A sender at its limit drops connections just when their receivers send another request over them.
TEST_F(DataPlaneFaultTest, AtTheLimitEveryPullEndsAndTheLimitHolds) {
  const uint64_t seed = ::phalanx::testing::TestSeed(29);
  PHALANX_TRACE_SEED(seed);
  Random random(seed);
  DataPlaneOptions few;
  few.max_connections = 3;
  std::vector<SimPlane*> nodes;
  for (const char* name : {"a", "b", "c", "d", "e"}) {
    nodes.push_back(&world_.Add(name, few, 3));
    nodes.back()->shelf.Put(Id(1), Gen(), WholeBuffer(1000));
  }
  int whole = 0;
  for (int round = 0; round < 400; ++round) {
    std::vector<StartedPull> pulls;
    for (SimPlane* node : nodes) {
      SimPlane* const from = nodes[random.Below(nodes.size())];
      if (from != node) pulls.push_back(node->Pull(*from, Id(1), EmptyBuffer(1000)));
      world_.RunFor(absl::Microseconds(static_cast<double>(random.Below(300))));
      // On each loop there is one more until a dropped connection is closed.
      EXPECT_LE(node->plane().stats().connections, 3 + 3);
    }
    for (const StartedPull& pull : pulls) {
      ASSERT_TRUE(world_.RunUntilDone(pull));
      EXPECT_EQ(FirstWrongByte(*pull.into), std::nullopt);
      if (pull.status().ok()) ++whole;
    }
  }
  EXPECT_GT(whole, 400);
  world_.RunFor(2 * DataPlaneOptions().idle_timeout);
  for (SimPlane* node : nodes) {
    EXPECT_EQ(node->plane().stats().connections, 0);
    EXPECT_EQ(node->plane().stats().pushes_active, 0);
    EXPECT_EQ(node->shelf.pins(), 0);
  }
}

// Changed bytes.

TEST_F(DataPlaneFaultTest, WithChecksumsNoChangedByteIsEverPublished) {
  const uint64_t seed = ::phalanx::testing::TestSeed(17);
  PHALANX_TRACE_SEED(seed);
  Random random(seed);
  SimPlane& a = world_.Add("a");
  a.shelf.Put(Id(1), Gen(), WholeBuffer(200'000, 2));
  SimPlane& b = world_.Add("b");
  sim::SimExecutor& loop = b.control();
  int noticed = 0;
  for (int i = 0; i < 400; ++i) {
    // Over the whole stream: handshake, headers, control payloads, bytes.
    const uint64_t at = i < 300 ? static_cast<uint64_t>(i) : random.Below(200'300);
    CorruptingNetwork network(b.network(), at);
    DataPlaneOptions options;
    options.self = {50, 1};
    options.checksums = true;
    auto plane = DataPlane::Create(network, loop, {&loop}, options, nullptr).value();
    StartedPull pull;
    pull.into = EmptyBuffer(200'000, 2);
    plane->StartPull({a.self(), a.address(), Id(1), Gen(), pull.into, ~uint64_t{0}},
                     [outcome = pull.outcome](const PullOutcome& o) { *outcome = o; });
    ASSERT_TRUE(world_.RunUntilDone(pull)) << "byte " << at;
    ASSERT_EQ(FirstWrongByte(*pull.into), std::nullopt) << "byte " << at;
    if (pull.status().ok()) {
      ASSERT_TRUE(pull.into->complete());
    } else {
      ++noticed;
    }
  }
  EXPECT_GT(noticed, 390) << "only what comes after the last byte of the object may pass";
}

TEST_F(DataPlaneFaultTest, AChangedByteOfASegmentIsDataLossAndTheWatermarkStaysBelowIt) {
  SimPlane& a = world_.Add("a");
  a.shelf.Put(Id(1), Gen(), WholeBuffer(kMiB));
  SimPlane& b = world_.Add("b");
  sim::SimExecutor& loop = b.control();
  CorruptingNetwork network(b.network(), 300'000);
  DataPlaneOptions options;
  options.self = {50, 1};
  options.checksums = true;
  auto plane = DataPlane::Create(network, loop, {&loop}, options, nullptr).value();
  StartedPull pull;
  pull.into = EmptyBuffer(kMiB);
  const PullSpec spec = {a.self(), a.address(), Id(1), Gen(), pull.into};
  plane->StartPull(spec, [outcome = pull.outcome](const PullOutcome& o) { *outcome = o; });
  ExpectEndsWith(pull, absl::StatusCode::kDataLoss);
  EXPECT_THAT(pull.status().message(), HasSubstr("checksum mismatch"));
  EXPECT_EQ(pull.into->watermark(0), uint64_t{4 * 65536});
  EXPECT_EQ(plane->stats().frames_refused, 1u);
  EXPECT_EQ(plane->stats().bytes_wasted, 65536u);

  // The next pull gets the rest: the fault happens once per connection.
  CorruptingNetwork sound(b.network(), ~uint64_t{0});
  auto again = DataPlane::Create(sound, loop, {&loop}, options, nullptr).value();
  StartedPull rest;
  rest.into = pull.into;
  again->StartPull(spec, [outcome = rest.outcome](const PullOutcome& o) { *outcome = o; });
  ExpectEndsWith(rest, absl::StatusCode::kOk);
}

TEST_F(DataPlaneFaultTest, AWatermarkPublishedBeforeItsCheckWouldBeDetected) {
  const ScopedDefect defect(Defect::kWatermarkBeforeCheck);
  SimPlane& a = world_.Add("a");
  a.shelf.Put(Id(1), Gen(), WholeBuffer(kMiB));
  SimPlane& b = world_.Add("b");
  sim::SimExecutor& loop = b.control();
  CorruptingNetwork network(b.network(), 300'000);
  DataPlaneOptions options;
  options.self = {50, 1};
  options.checksums = true;
  auto plane = DataPlane::Create(network, loop, {&loop}, options, nullptr).value();
  StartedPull pull;
  pull.into = EmptyBuffer(kMiB);
  plane->StartPull({a.self(), a.address(), Id(1), Gen(), pull.into},
                   [outcome = pull.outcome](const PullOutcome& o) { *outcome = o; });
  ASSERT_TRUE(world_.RunUntilDone(pull));
  EXPECT_NE(FirstWrongByte(*pull.into), std::nullopt);
}

// All faults together.

TEST_F(DataPlaneFaultTest, UnderRandomFaultsEveryPullEndsAndNoByteIsWrong) {
  const uint64_t first = ::phalanx::testing::TestSeed(1);
  const uint64_t last = ::phalanx::testing::SeedGiven() ? first : first + 39;
  for (uint64_t seed = first; seed <= last; ++seed) {
    PHALANX_TRACE_SEED(seed);
    Random random(seed);
    sim::SimFabric::Options options = FastLinks();
    options.seed = seed;
    options.short_io = random.Chance(0.5) ? 0.2 : 0;
    options.link.jitter = absl::Microseconds(random.Below(300));
    SimPlanes world(options, seed);
    std::vector<SimPlane*> nodes;
    const std::vector<std::string> names = {"a", "b", "c", "d"};
    for (const std::string& name : names) {
      DataPlaneOptions plane;
      plane.checksums = random.Chance(0.5);
      plane.max_egress = random.Chance(0.2) ? 200e6 : 0;
      plane.max_pushes = random.Chance(0.2) ? 2 : 1024;
      nodes.push_back(&world.Add(name, plane, static_cast<int>(random.Below(3))));
    }
    const uint64_t bytes = 1 + random.Below(2 * kMiB);
    const int slices = 1 + static_cast<int>(random.Below(4));
    nodes[0]->shelf.Put(Id(1), Gen(), WholeBuffer(bytes, slices));
    std::vector<std::shared_ptr<TransferBuffer>> copies;
    for (size_t i = 1; i < nodes.size(); ++i) {
      copies.push_back(EmptyBuffer(bytes, slices));
      nodes[i]->shelf.Put(Id(1), Gen(), copies.back());
    }
    // One pull per node at a time, each from a node before it, so that no nodes wait in a circle.
    std::vector<std::optional<StartedPull>> running(copies.size());
    for (int round = 0; round < 60; ++round) {
      for (size_t i = 0; i < copies.size(); ++i) {
        if (running[i].has_value() && !running[i]->done()) continue;
        running[i] = nodes[i + 1]->Pull(*nodes[random.Below(i + 1)], Id(1), copies[i]);
      }
      world.RunFor(absl::Microseconds(random.Below(3000)));
      const std::string& x = names[random.Below(4)];
      const std::string& y = names[random.Below(4)];
      if (random.Chance(0.15)) world.fabric().Reset(x, y);
      if (random.Chance(0.1)) world.fabric().HalfOpen(x, y);
      if (random.Chance(0.05)) world.fabric().Partition(x, y);
      if (random.Chance(0.1)) world.fabric().HealAll();
      const size_t i = random.Below(copies.size());
      if (random.Chance(0.15)) nodes[i + 1]->plane().CancelPull(running[i]->handle);
    }
    // From here on there are no faults, and everything must finish.
    world.fabric().HealAll();
    for (int round = 0; round < 20; ++round) {
      for (size_t i = 0; i < copies.size(); ++i) {
        ASSERT_TRUE(world.RunUntilDone(*running[i]));
        running[i] = nodes[i + 1]->Pull(*nodes[0], Id(1), copies[i]);
      }
    }
    for (size_t i = 0; i < copies.size(); ++i) {
      ASSERT_TRUE(world.RunUntilDone(*running[i]));
      EXPECT_TRUE(copies[i]->complete());
      EXPECT_EQ(FirstWrongByte(*copies[i]), std::nullopt);
    }
    world.RunFor(absl::Seconds(5));
    for (SimPlane* node : nodes) {
      EXPECT_EQ(node->shelf.pins(), 0);
      EXPECT_EQ(node->plane().stats().pulls_active, 0);
      EXPECT_EQ(node->plane().stats().pushes_active, 0);
      EXPECT_EQ(node->plane().stats().frames_refused, 0u);
    }
  }
}

}  // namespace
}  // namespace phalanx::net
