#include "src/net/plane/data_plane.h"

#include <set>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "src/common/testing/scoped_defect.h"
#include "src/common/testing/status_matchers.h"
#include "src/net/testing/sim_plane.h"

namespace phalanx::net {
namespace {

using ::phalanx::testing::IsOk;
using ::phalanx::testing::ScopedDefect;
using ::phalanx::testing::StatusIs;
using testing::EmptyBuffer;
using testing::FirstWrongByte;
using testing::Gen;
using testing::Grow;
using ::testing::HasSubstr;
using testing::Id;
using ::testing::Not;
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

void ExpectWhole(const StartedPull& pull) {
  EXPECT_TRUE(pull.into->complete());
  EXPECT_EQ(FirstWrongByte(*pull.into), std::nullopt);
}

class DataPlaneTest : public ::testing::Test {
 protected:
  SimPlanes world_{FastLinks()};
};

TEST_F(DataPlaneTest, APullTransfersEveryByte) {
  SimPlane& a = world_.Add("a");
  SimPlane& b = world_.Add("b");
  a.shelf.Put(Id(1), Gen(), WholeBuffer(3 * kMiB + 17));
  const StartedPull pull = b.Pull(a, Id(1), EmptyBuffer(3 * kMiB + 17));
  ASSERT_TRUE(world_.RunUntilDone(pull));
  PHALANX_ASSERT_OK(pull.status());
  ExpectWhole(pull);
  EXPECT_EQ((*pull.outcome)->bytes_received, 3 * kMiB + 17);
  EXPECT_EQ(b.plane().stats().bytes_received, 3 * kMiB + 17);
  EXPECT_EQ(b.plane().stats().pulls_active, 0);
}

TEST_F(DataPlaneTest, ThePinIsHeldForAsLongAsThePushRuns) {
  SimPlane& a = world_.Add("a");
  SimPlane& b = world_.Add("b");
  a.shelf.Put(Id(1), Gen(), WholeBuffer(kMiB));
  const StartedPull pull = b.Pull(a, Id(1), EmptyBuffer(kMiB));
  ASSERT_TRUE(world_.scheduler().RunUntil([&] { return a.shelf.pins() == 1; }, absl::Seconds(1)));
  EXPECT_FALSE(pull.done());
  world_.RunFor(absl::Microseconds(500));
  EXPECT_EQ(a.plane().stats().pushes_active, 1);
  ASSERT_TRUE(world_.RunUntilDone(pull));
  world_.RunFor(absl::Milliseconds(1));
  EXPECT_EQ(a.shelf.pins(), 0);
  EXPECT_EQ(a.plane().stats().pushes_active, 0);
}

TEST_F(DataPlaneTest, ACompleteBufferNeedsNoSender) {
  SimPlane& b = world_.Add("b");
  const StartedPull empty = b.Pull({{99, 1}, "nowhere:1", Id(1), Gen(), EmptyBuffer(0)});
  const StartedPull full = b.Pull({{99, 1}, "nowhere:1", Id(1), Gen(), WholeBuffer(10)});
  EXPECT_FALSE(empty.done()) << "never inside StartPull";
  ASSERT_TRUE(world_.RunUntilDone(empty) && world_.RunUntilDone(full));
  PHALANX_EXPECT_OK(empty.status());
  PHALANX_EXPECT_OK(full.status());
}

TEST_F(DataPlaneTest, TheNextPullTakesTheSameConnection) {
  SimPlane& a = world_.Add("a");
  SimPlane& b = world_.Add("b");
  a.shelf.Put(Id(1), Gen(), WholeBuffer(1000));
  for (int i = 0; i < 5; ++i) {
    const StartedPull pull = b.Pull(a, Id(1), EmptyBuffer(1000));
    ASSERT_TRUE(world_.RunUntilDone(pull));
    ExpectWhole(pull);
    world_.RunFor(absl::Milliseconds(1));
  }
  EXPECT_EQ(a.plane().stats().connections, 1);
  EXPECT_EQ(b.plane().stats().connections, 1);
  EXPECT_EQ(a.shelf.requests(), 5);
}

TEST_F(DataPlaneTest, APullWithoutABufferConnectsForTheNextOne) {
  SimPlane& a = world_.Add("a");
  SimPlane& b = world_.Add("b");
  a.shelf.Put(Id(1), Gen(), WholeBuffer(1000));
  for (int i = 0; i < 2; ++i) {
    const StartedPull connect = b.Pull({a.self(), a.address(), {}, {}, nullptr, 0});
    ASSERT_TRUE(world_.RunUntilDone(connect));
    PHALANX_EXPECT_OK(connect.status());
    world_.RunFor(absl::Milliseconds(1));
    EXPECT_EQ(b.plane().stats().connections, i + 1) << "each with a connection of its own";
  }
  const StartedPull pull = b.Pull(a, Id(1), EmptyBuffer(1000));
  ASSERT_TRUE(world_.RunUntilDone(pull));
  ExpectWhole(pull);
  EXPECT_EQ(b.plane().stats().connections, 2);
  EXPECT_EQ(a.shelf.requests(), 1);
}

TEST_F(DataPlaneTest, ASmallPullOverAnOpenConnectionCostsOneRoundTrip) {
  SimPlane& a = world_.Add("a");
  SimPlane& b = world_.Add("b");
  a.shelf.Put(Id(1), Gen(), WholeBuffer(1000));
  ASSERT_TRUE(world_.RunUntilDone(b.Pull(a, Id(1), EmptyBuffer(1000))));
  world_.RunFor(absl::Milliseconds(1));
  const StartedPull pull = b.Pull(a, Id(1), EmptyBuffer(1000));
  EXPECT_LT(world_.TimeUntilDone(pull), absl::Microseconds(220));
  EXPECT_GT((*pull.outcome)->first_byte, absl::Microseconds(199));
  EXPECT_LT((*pull.outcome)->first_byte, absl::Microseconds(220));
}

TEST_F(DataPlaneTest, WorksWithOneByteAtATime) {
  SimPlane& a = world_.Add("a");
  SimPlane& b = world_.Add("b");
  world_.fabric().SetShortIo(0, true);
  a.shelf.Put(Id(1), Gen(), WholeBuffer(3000, 3));
  const StartedPull pull = b.Pull(a, Id(1), EmptyBuffer(3000, 3));
  ASSERT_TRUE(world_.RunUntilDone(pull));
  PHALANX_ASSERT_OK(pull.status());
  ExpectWhole(pull);
}

TEST_F(DataPlaneTest, WorksWithSeveralIoLoops) {
  SimPlane& a = world_.Add("a", {}, 3);
  SimPlane& b = world_.Add("b", {}, 3);
  a.shelf.Put(Id(1), Gen(), WholeBuffer(kMiB));
  std::vector<StartedPull> pulls;
  for (int i = 0; i < 9; ++i) pulls.push_back(b.Pull(a, Id(1), EmptyBuffer(kMiB)));
  for (const StartedPull& pull : pulls) {
    ASSERT_TRUE(world_.RunUntilDone(pull));
    PHALANX_EXPECT_OK(pull.status());
    ExpectWhole(pull);
  }
}

TEST_F(DataPlaneTest, TheControlLoopCanBeTheIoLoop) {
  SimPlane& a = world_.Add("a", {}, 0);
  SimPlane& b = world_.Add("b", {}, 0);
  a.shelf.Put(Id(1), Gen(), WholeBuffer(kMiB));
  const StartedPull pull = b.Pull(a, Id(1), EmptyBuffer(kMiB));
  ASSERT_TRUE(world_.RunUntilDone(pull));
  ExpectWhole(pull);
}

// Resume and slices.

TEST_F(DataPlaneTest, ResumesAtTheWatermark) {
  SimPlane& a = world_.Add("a");
  SimPlane& b = world_.Add("b");
  a.shelf.Put(Id(1), Gen(), WholeBuffer(kMiB));
  auto into = EmptyBuffer(kMiB);
  Grow(*into, 0, 700'001);
  const StartedPull pull = b.Pull(a, Id(1), into);
  ASSERT_TRUE(world_.RunUntilDone(pull));
  PHALANX_ASSERT_OK(pull.status());
  ExpectWhole(pull);
  EXPECT_EQ((*pull.outcome)->bytes_received, kMiB - 700'001);
}

TEST_F(DataPlaneTest, ResumingOneByteLateWouldBeDetected) {
  const ScopedDefect defect(Defect::kResumeOneByteLate);
  SimPlane& a = world_.Add("a");
  SimPlane& b = world_.Add("b");
  a.shelf.Put(Id(1), Gen(), WholeBuffer(kMiB));
  auto into = EmptyBuffer(kMiB);
  Grow(*into, 0, 700'001);
  const StartedPull pull = b.Pull(a, Id(1), into);
  ASSERT_TRUE(world_.RunUntilDone(pull));
  EXPECT_EQ(FirstWrongByte(*into), 700'001);
}

TEST_F(DataPlaneTest, TransfersOnlyTheRequestedSlices) {
  SimPlane& a = world_.Add("a");
  SimPlane& b = world_.Add("b");
  a.shelf.Put(Id(1), Gen(), WholeBuffer(kMiB, 4));
  auto into = EmptyBuffer(kMiB, 4);
  Grow(*into, 3, 1000);
  const StartedPull pull = b.Pull(a, Id(1), into, 0b1010);
  ASSERT_TRUE(world_.RunUntilDone(pull));
  PHALANX_ASSERT_OK(pull.status());
  EXPECT_EQ(into->watermark(0), 0u);
  EXPECT_EQ(into->watermark(1), into->layout().Size(1));
  EXPECT_EQ(into->watermark(2), 0u);
  EXPECT_EQ(into->watermark(3), into->layout().Size(3));
  EXPECT_EQ(FirstWrongByte(*into), std::nullopt);
}

TEST_F(DataPlaneTest, SlicesOfOnePullTakeTurns) {
  SimPlane& a = world_.Add("a");
  SimPlane& b = world_.Add("b");
  a.shelf.Put(Id(1), Gen(), WholeBuffer(8 * kMiB, 2));
  const StartedPull pull = b.Pull(a, Id(1), EmptyBuffer(8 * kMiB, 2));
  const auto half = [&] { return pull.into->bytes_present() > 4 * kMiB; };
  ASSERT_TRUE(world_.scheduler().RunUntil(half, absl::Seconds(1)));
  EXPECT_NEAR(static_cast<double>(pull.into->watermark(0)),
              static_cast<double>(pull.into->watermark(1)), 128 * 1024);
  ASSERT_TRUE(world_.RunUntilDone(pull));
  ExpectWhole(pull);
}

TEST_F(DataPlaneTest, ASliceWithBytesDoesNotWaitForOneWithout) {
  SimPlane& a = world_.Add("a");
  SimPlane& b = world_.Add("b");
  auto source = EmptyBuffer(kMiB, 2);
  Grow(*source, 1, source->layout().Size(1));
  a.shelf.Put(Id(1), Gen(), source);
  const StartedPull pull = b.Pull(a, Id(1), EmptyBuffer(kMiB, 2));
  world_.RunFor(absl::Milliseconds(10));
  EXPECT_EQ(pull.into->watermark(0), 0u);
  EXPECT_EQ(pull.into->watermark(1), pull.into->layout().Size(1));
  EXPECT_FALSE(pull.done());
  Grow(*source, 0, source->layout().Size(0));
  ASSERT_TRUE(world_.RunUntilDone(pull));
  ExpectWhole(pull);
}

TEST_F(DataPlaneTest, AWrongSliceOffsetWouldBeDetected) {
  const ScopedDefect defect(Defect::kWrongSliceOffset);
  SimPlane& a = world_.Add("a");
  SimPlane& b = world_.Add("b");
  a.shelf.Put(Id(1), Gen(), WholeBuffer(kMiB, 2));
  const StartedPull pull = b.Pull(a, Id(1), EmptyBuffer(kMiB, 2));
  ASSERT_TRUE(world_.RunUntilDone(pull));
  EXPECT_NE(FirstWrongByte(*pull.into), std::nullopt);
}

// Relays.

// The Hoplite paper (SIGCOMM 2021), section 4.2: a receiver relays an object while it arrives, so a
// chain takes little longer than its slowest link.
TEST_F(DataPlaneTest, AChainOfEightRelaysIsPipelined) {
  const uint64_t size = 64 * kMiB;
  std::vector<SimPlane*> nodes;
  for (int i = 0; i <= 8; ++i) nodes.push_back(&world_.Add(absl::StrCat("n", i)));
  nodes[0]->shelf.Put(Id(1), Gen(), WholeBuffer(size));
  std::vector<StartedPull> pulls;
  for (size_t i = 1; i < nodes.size(); ++i) {
    auto into = EmptyBuffer(size);
    nodes[i]->shelf.Put(Id(1), Gen(), into);
    pulls.push_back(nodes[i]->Pull(*nodes[i - 1], Id(1), into));
  }
  const absl::Duration time = world_.TimeUntilDone(pulls.back());
  for (const StartedPull& pull : pulls) {
    PHALANX_ASSERT_OK(pull.status());
    ExpectWhole(pull);
  }
  const absl::Duration one_link = absl::Seconds(static_cast<double>(size) / 1e9);
  EXPECT_GE(time, one_link);
  // Per hop: at most three round trips to start, and a segment.
  EXPECT_LT(time, one_link + 8 * absl::Microseconds(700));
}

TEST_F(DataPlaneTest, ARelayBehindItsReceiverWaits) {
  SimPlane& a = world_.Add("a");
  SimPlane& b = world_.Add("b");
  auto relay = EmptyBuffer(kMiB);
  a.shelf.Put(Id(1), Gen(), relay);
  auto into = EmptyBuffer(kMiB);
  Grow(*into, 0, kMiB / 2);
  const StartedPull pull = b.Pull(a, Id(1), into);
  world_.RunFor(absl::Seconds(3));
  Grow(*relay, 0, kMiB / 4);
  world_.RunFor(absl::Seconds(3));
  EXPECT_FALSE(pull.done());
  Grow(*relay, 0, kMiB);
  ASSERT_TRUE(world_.RunUntilDone(pull));
  ExpectWhole(pull);
  EXPECT_EQ((*pull.outcome)->bytes_received, kMiB / 2);
}

TEST_F(DataPlaneTest, AStarvedSenderKeepsItsReceiverForLong) {
  SimPlane& a = world_.Add("a");
  SimPlane& b = world_.Add("b");
  auto source = EmptyBuffer(100);
  a.shelf.Put(Id(1), Gen(), source);
  const StartedPull pull = b.Pull(a, Id(1), EmptyBuffer(100));
  for (uint64_t n = 10; n <= 100; n += 10) {
    world_.RunFor(absl::Seconds(60));
    ASSERT_FALSE(pull.done());
    Grow(*source, 0, n);
  }
  ASSERT_TRUE(world_.RunUntilDone(pull));
  PHALANX_ASSERT_OK(pull.status());
  ExpectWhole(pull);
  EXPECT_GT((*pull.outcome)->starved, absl::Minutes(9));
  EXPECT_EQ(world_.fabric().open_connections(), 1u);
}

TEST_F(DataPlaneTest, CountingStarvedAsStalledWouldBeDetected) {
  const ScopedDefect defect(Defect::kStarvedCountedAsStalled);
  SimPlane& a = world_.Add("a");
  SimPlane& b = world_.Add("b");
  a.shelf.Put(Id(1), Gen(), EmptyBuffer(100));
  const StartedPull pull = b.Pull(a, Id(1), EmptyBuffer(100));
  world_.RunFor(absl::Seconds(3));
  ASSERT_TRUE(pull.done());
  EXPECT_THAT(pull.status(), StatusIs(absl::StatusCode::kDeadlineExceeded));
}

TEST_F(DataPlaneTest, TheRateExcludesTheTimeStarved) {
  SimPlane& a = world_.Add("a");
  SimPlane& b = world_.Add("b");
  auto source = EmptyBuffer(16 * kMiB);
  a.shelf.Put(Id(1), Gen(), source);
  const StartedPull pull = b.Pull(a, Id(1), EmptyBuffer(16 * kMiB));
  for (uint64_t n = 4; n <= 16; n += 4) {
    world_.RunFor(absl::Milliseconds(200));
    Grow(*source, 0, n * kMiB);
  }
  ASSERT_TRUE(world_.RunUntilDone(pull));
  EXPECT_NEAR((*pull.outcome)->bytes_per_second, 1e9, 0.15e9);
  EXPECT_NEAR(absl::ToDoubleMilliseconds((*pull.outcome)->starved), 790, 20);
}

TEST_F(DataPlaneTest, TheRateOfAFewBytesIsUnknown) {
  SimPlane& a = world_.Add("a");
  SimPlane& b = world_.Add("b");
  a.shelf.Put(Id(1), Gen(), WholeBuffer(1000));
  const StartedPull pull = b.Pull(a, Id(1), EmptyBuffer(1000));
  ASSERT_TRUE(world_.RunUntilDone(pull));
  EXPECT_EQ((*pull.outcome)->bytes_per_second, 0);
}

// Limits.

TEST_F(DataPlaneTest, EgressIsLimitedOverAllPushes) {
  DataPlaneOptions slow;
  slow.max_egress = 100e6;
  SimPlane& a = world_.Add("a", slow, 2);
  SimPlane& b = world_.Add("b");
  SimPlane& c = world_.Add("c");
  a.shelf.Put(Id(1), Gen(), WholeBuffer(10'000'000));
  const StartedPull to_b = b.Pull(a, Id(1), EmptyBuffer(10'000'000));
  const StartedPull to_c = c.Pull(a, Id(1), EmptyBuffer(10'000'000));
  const Instant start = world_.scheduler().now();
  ASSERT_TRUE(world_.RunUntilDone(to_b) && world_.RunUntilDone(to_c));
  ExpectWhole(to_b);
  ExpectWhole(to_c);
  EXPECT_NEAR(absl::ToDoubleMilliseconds(world_.scheduler().now() - start), 200, 10);
  // A throttled sender is not starved: the limit is its true rate.
  EXPECT_EQ((*to_b.outcome)->starved, absl::ZeroDuration());
  EXPECT_NEAR((*to_b.outcome)->bytes_per_second, 50e6, 10e6);
}

TEST_F(DataPlaneTest, AThrottledSenderIsNotMistakenForAStalledOne) {
  DataPlaneOptions slow;
  slow.max_egress = 20'000;
  SimPlane& a = world_.Add("a", slow);
  SimPlane& b = world_.Add("b");
  a.shelf.Put(Id(1), Gen(), WholeBuffer(400'000));
  const StartedPull pull = b.Pull(a, Id(1), EmptyBuffer(400'000));
  ASSERT_TRUE(world_.RunUntilDone(pull));
  PHALANX_EXPECT_OK(pull.status());
}

TEST_F(DataPlaneTest, OneMorePushThanAllowedIsRefused) {
  DataPlaneOptions few;
  few.max_pushes = 2;
  SimPlane& a = world_.Add("a", few);
  SimPlane& b = world_.Add("b");
  auto source = EmptyBuffer(100);
  a.shelf.Put(Id(1), Gen(), source);
  const StartedPull first = b.Pull(a, Id(1), EmptyBuffer(100));
  const StartedPull second = b.Pull(a, Id(1), EmptyBuffer(100));
  world_.RunFor(absl::Milliseconds(10));
  const StartedPull third = b.Pull(a, Id(1), EmptyBuffer(100));
  ASSERT_TRUE(world_.RunUntilDone(third));
  EXPECT_THAT(third.status(), StatusIs(absl::StatusCode::kResourceExhausted));
  Grow(*source, 0, 100);
  ASSERT_TRUE(world_.RunUntilDone(first) && world_.RunUntilDone(second));
  world_.RunFor(absl::Milliseconds(10));
  const StartedPull fourth = b.Pull(a, Id(1), EmptyBuffer(100));
  ASSERT_TRUE(world_.RunUntilDone(fourth));
  PHALANX_EXPECT_OK(fourth.status());
}

TEST_F(DataPlaneTest, ARequestCanBeAnsweredLater) {
  SimPlane& a = world_.Add("a");
  SimPlane& b = world_.Add("b");
  a.shelf.Put(Id(1), Gen(), WholeBuffer(100));
  std::optional<ServeRequest> requested;
  DataPlane::ServeReply later;
  a.serve = [&](const ServeRequest& request, DataPlane::ServeReply reply) {
    requested = request;
    later = std::move(reply);
  };
  const StartedPull pull = b.Pull(a, Id(1), EmptyBuffer(100));
  world_.RunFor(absl::Milliseconds(400));
  ASSERT_TRUE(requested.has_value());
  EXPECT_EQ(requested->receiver, b.self());
  EXPECT_FALSE(pull.done());
  later(a.shelf.Serve(*requested));
  ASSERT_TRUE(world_.RunUntilDone(pull, absl::Milliseconds(1)));
  PHALANX_EXPECT_OK(pull.status());
}

TEST_F(DataPlaneTest, AnAnswerWithinTheReceiversPatienceIsInTime) {
  SimPlane& a = world_.Add("a");
  DataPlane::ServeReply later;
  absl::Duration patience;
  a.serve = [&](const ServeRequest& request, DataPlane::ServeReply reply) {
    patience = request.patience;
    later = std::move(reply);
  };
  int n = 0;
  for (const int milliseconds : {4, 40, 100, 200, 500, 60'000}) {
    DataPlaneOptions options;
    options.stall_timeout = absl::Milliseconds(milliseconds);
    SimPlane& b = world_.Add(absl::StrCat("b", n++), options);
    const StartedPull pull = b.Pull(a, Id(1), EmptyBuffer(100));
    ASSERT_TRUE(world_.scheduler().RunUntil([&] { return later != nullptr; }, absl::Seconds(1)));
    EXPECT_GE(patience, options.stall_timeout / 4);
    world_.RunFor(patience);
    std::exchange(later, nullptr)(absl::NotFoundError("after all"));
    ASSERT_TRUE(world_.RunUntilDone(pull));
    EXPECT_THAT(pull.status(), StatusIs(absl::StatusCode::kNotFound)) << milliseconds;
  }
}

TEST_F(DataPlaneTest, OptionsOutOfBoundsAreNamed) {
  SimPlane& a = world_.Add("a");
  const auto refusal = [&a](void (*spoil)(DataPlaneOptions&)) {
    DataPlaneOptions options;
    spoil(options);
    return DataPlane::Create(a.network(), a.control(), {&a.control()}, options, nullptr)
        .status()
        .ToString();
  };
  const auto bad = ::testing::HasSubstr("INVALID_ARGUMENT");
  using ::testing::AllOf;
  using ::testing::HasSubstr;
  EXPECT_THAT(refusal([](DataPlaneOptions& o) { o.stall_timeout = absl::Milliseconds(3); }),
              AllOf(bad, HasSubstr("stall timeout is 3ms, not from 4ms to 1m")));
  EXPECT_THAT(refusal([](DataPlaneOptions& o) { o.segment_bytes = 0; }),
              AllOf(bad, HasSubstr("segment size is 0")));
  EXPECT_THAT(refusal([](DataPlaneOptions& o) { o.max_connections = 0; }),
              AllOf(bad, HasSubstr("limit of connections is 0")));
  EXPECT_THAT(refusal([](DataPlaneOptions& o) { o.max_egress = -1; }),
              AllOf(bad, HasSubstr("egress limit is -1")));
}

TEST_F(DataPlaneTest, ARequestThatIsDroppedIsRefused) {
  SimPlane& a = world_.Add("a");
  SimPlane& b = world_.Add("b");
  a.serve = [](const ServeRequest&, DataPlane::ServeReply) {};
  const StartedPull pull = b.Pull(a, Id(1), EmptyBuffer(100));
  ASSERT_TRUE(world_.RunUntilDone(pull, absl::Milliseconds(5)));
  EXPECT_THAT(pull.status(), StatusIs(absl::StatusCode::kUnavailable));
}

TEST_F(DataPlaneTest, ARequestThatWaitsCountsAsAPush) {
  DataPlaneOptions one;
  one.max_pushes = 1;
  SimPlane& a = world_.Add("a", one);
  SimPlane& b = world_.Add("b");
  DataPlane::ServeReply later;
  a.serve = [&](const ServeRequest&, DataPlane::ServeReply reply) { later = std::move(reply); };
  const StartedPull first = b.Pull(a, Id(1), EmptyBuffer(100));
  world_.RunFor(absl::Milliseconds(10));
  const StartedPull second = b.Pull(a, Id(1), EmptyBuffer(100));
  ASSERT_TRUE(world_.RunUntilDone(second));
  EXPECT_THAT(second.status(), StatusIs(absl::StatusCode::kResourceExhausted));
  later(absl::NotFoundError("after all"));
  ASSERT_TRUE(world_.RunUntilDone(first));
  EXPECT_THAT(first.status(), StatusIs(absl::StatusCode::kNotFound));
}

TEST_F(DataPlaneTest, OneMoreConnectionThanAllowedIsRefusedOnBothSides) {
  DataPlaneOptions few;
  few.max_connections = 1;
  SimPlane& a = world_.Add("a", few);
  SimPlane& b = world_.Add("b", few);
  SimPlane& c = world_.Add("c");
  a.shelf.Put(Id(1), Gen(), EmptyBuffer(100));
  const StartedPull first = b.Pull(a, Id(1), EmptyBuffer(100));
  world_.RunFor(absl::Milliseconds(10));
  const StartedPull no_more_dialed = b.Pull(a, Id(1), EmptyBuffer(100));
  ASSERT_TRUE(world_.RunUntilDone(no_more_dialed));
  EXPECT_THAT(no_more_dialed.status(), StatusIs(absl::StatusCode::kResourceExhausted));
  const StartedPull no_more_accepted = c.Pull(a, Id(1), EmptyBuffer(100));
  ASSERT_TRUE(world_.RunUntilDone(no_more_accepted));
  EXPECT_THAT(no_more_accepted.status(), StatusIs(absl::StatusCode::kUnavailable));
  EXPECT_FALSE(first.done());
}

TEST_F(DataPlaneTest, AnIdleConnectionMakesRoomForANewOne) {
  DataPlaneOptions few;
  few.max_connections = 1;
  SimPlane& a = world_.Add("a");
  SimPlane& b = world_.Add("b", few);
  SimPlane& c = world_.Add("c");
  a.shelf.Put(Id(1), Gen(), WholeBuffer(100));
  c.shelf.Put(Id(1), Gen(), WholeBuffer(100));
  const StartedPull from_a = b.Pull(a, Id(1), EmptyBuffer(100));
  ASSERT_TRUE(world_.RunUntilDone(from_a));
  const StartedPull from_c = b.Pull(c, Id(1), EmptyBuffer(100));
  ASSERT_TRUE(world_.RunUntilDone(from_c));
  PHALANX_EXPECT_OK(from_a.status());
  PHALANX_EXPECT_OK(from_c.status());
}

TEST_F(DataPlaneTest, PullsOfOnePeerOneAfterAnotherShareOneConnection) {
  SimPlane& a = world_.Add("a");
  SimPlane& b = world_.Add("b", {}, 3);
  a.shelf.Put(Id(1), Gen(), WholeBuffer(100));
  for (int i = 0; i < 5; ++i) {
    const StartedPull pull = b.Pull(a, Id(1), EmptyBuffer(100));
    ASSERT_TRUE(world_.RunUntilDone(pull));
    PHALANX_EXPECT_OK(pull.status());
    world_.RunFor(absl::Milliseconds(1));
  }
  EXPECT_EQ(b.plane().stats().connections, 1);
}

TEST_F(DataPlaneTest, ConcurrentPullsAreSpreadOverTheLoops) {
  SimPlane& a = world_.Add("a");
  SimPlane& b = world_.Add("b", {}, 3);
  a.shelf.Put(Id(1), Gen(), WholeBuffer(100));
  std::vector<StartedPull> pulls;
  std::set<Executor*> loops;
  for (int i = 0; i < 3; ++i) {
    pulls.push_back(b.Pull(a, Id(1), EmptyBuffer(100)));
    loops.insert(b.plane().LoopOf(pulls.back().handle));
  }
  EXPECT_EQ(loops.size(), 3u);
  EXPECT_EQ(loops.count(nullptr), 0u);
  for (const StartedPull& pull : pulls) {
    ASSERT_TRUE(world_.RunUntilDone(pull));
    EXPECT_EQ(b.plane().LoopOf(pull.handle), nullptr);
  }
}

TEST_F(DataPlaneTest, AnIdleConnectionOfAnotherLoopMakesRoomForANewOne) {
  DataPlaneOptions few;
  few.max_connections = 1;
  SimPlane& a = world_.Add("a");
  SimPlane& b = world_.Add("b", few, 3);
  SimPlane& c = world_.Add("c");
  a.shelf.Put(Id(1), Gen(), WholeBuffer(100));
  c.shelf.Put(Id(1), Gen(), WholeBuffer(100));
  // Each peer has its own loop for its pulls.
  for (int i = 0; i < 7; ++i) {
    const StartedPull pull = b.Pull(i % 2 == 0 ? a : c, Id(1), EmptyBuffer(100));
    ASSERT_TRUE(world_.RunUntilDone(pull));
    PHALANX_EXPECT_OK(pull.status());
    world_.RunFor(absl::Milliseconds(1));
    EXPECT_EQ(b.plane().stats().connections, 1);
  }
}

TEST_F(DataPlaneTest, AnIdleAcceptedConnectionMakesRoomForOneThatIsDialed) {
  DataPlaneOptions few;
  few.max_connections = 1;
  SimPlane& a = world_.Add("a", few, 2);
  SimPlane& b = world_.Add("b");
  a.shelf.Put(Id(1), Gen(), WholeBuffer(100));
  b.shelf.Put(Id(2), Gen(), WholeBuffer(100));
  for (int i = 0; i < 4; ++i) {
    const StartedPull from_a = b.Pull(a, Id(1), EmptyBuffer(100));
    ASSERT_TRUE(world_.RunUntilDone(from_a));
    PHALANX_EXPECT_OK(from_a.status());
    const StartedPull from_b = a.Pull(b, Id(2), EmptyBuffer(100));
    ASSERT_TRUE(world_.RunUntilDone(from_b));
    PHALANX_EXPECT_OK(from_b.status());
  }
}

TEST_F(DataPlaneTest, AnIdleConnectionOfEitherSideMakesRoomForOneThatIsAccepted) {
  DataPlaneOptions few;
  few.max_connections = 2;
  SimPlane& a = world_.Add("a", few, 2);
  SimPlane& b = world_.Add("b");
  SimPlane& c = world_.Add("c");
  SimPlane& d = world_.Add("d");
  a.shelf.Put(Id(1), Gen(), WholeBuffer(100));
  b.shelf.Put(Id(2), Gen(), WholeBuffer(100));
  const StartedPull dialed = a.Pull(b, Id(2), EmptyBuffer(100));
  ASSERT_TRUE(world_.RunUntilDone(dialed));
  for (SimPlane* peer : {&b, &c, &d, &b}) {
    const StartedPull pull = peer->Pull(a, Id(1), EmptyBuffer(100));
    ASSERT_TRUE(world_.RunUntilDone(pull));
    PHALANX_EXPECT_OK(pull.status());
  }
  world_.RunFor(absl::Milliseconds(10));
  EXPECT_EQ(a.plane().stats().connections, 2);
}

TEST_F(DataPlaneTest, ACancelledDialCountsUntilItsSocketIsClosed) {
  DataPlaneOptions few;
  few.max_connections = 2;
  SimPlane& a = world_.Add("a");
  SimPlane& b = world_.Add("b", few);
  world_.fabric().PartitionBothWays("a", "b");
  for (int i = 0; i < 2; ++i) {
    const StartedPull cancelled = b.Pull(a, Id(1), EmptyBuffer(100));
    world_.RunFor(absl::Milliseconds(10));
    b.plane().CancelPull(cancelled.handle);
    ASSERT_TRUE(world_.RunUntilDone(cancelled, absl::Milliseconds(1)));
  }
  EXPECT_EQ(b.plane().stats().connections, 2);
  const StartedPull third = b.Pull(a, Id(1), EmptyBuffer(100));
  ASSERT_TRUE(world_.RunUntilDone(third, absl::Milliseconds(1)));
  EXPECT_THAT(third.status(), StatusIs(absl::StatusCode::kResourceExhausted));
  world_.RunFor(absl::Seconds(2));
  EXPECT_EQ(b.plane().stats().connections, 0);
}

TEST_F(DataPlaneTest, NoMoreConnectionsIdleThanAllowed) {
  DataPlaneOptions two;
  two.max_idle_connections_per_peer = 2;
  SimPlane& a = world_.Add("a");
  SimPlane& b = world_.Add("b", two);
  a.shelf.Put(Id(1), Gen(), WholeBuffer(kMiB));
  std::vector<StartedPull> pulls;
  for (int i = 0; i < 6; ++i) pulls.push_back(b.Pull(a, Id(1), EmptyBuffer(kMiB)));
  for (const StartedPull& pull : pulls) ASSERT_TRUE(world_.RunUntilDone(pull));
  world_.RunFor(absl::Milliseconds(10));
  EXPECT_EQ(b.plane().stats().connections, 2);
  EXPECT_EQ(a.plane().stats().connections, 2);
}

TEST_F(DataPlaneTest, AnIdleConnectionIsClosedAfterItsTime) {
  SimPlane& a = world_.Add("a");
  SimPlane& b = world_.Add("b");
  const absl::Duration idle = DataPlaneOptions().idle_timeout;
  a.shelf.Put(Id(1), Gen(), WholeBuffer(100));
  ASSERT_TRUE(world_.RunUntilDone(b.Pull(a, Id(1), EmptyBuffer(100))));
  world_.RunFor(idle * 0.85);
  EXPECT_EQ(a.plane().stats().connections, 1);
  world_.RunFor(idle * 0.2);
  EXPECT_EQ(a.plane().stats().connections, 0);
  EXPECT_EQ(b.plane().stats().connections, 0);
  EXPECT_EQ(world_.fabric().open_connections(), 0u);
}

TEST_F(DataPlaneTest, AnIdlePlaneDoesNothing) {
  world_.Add("a");
  world_.RunFor(absl::Seconds(1));
  const uint64_t steps = world_.scheduler().steps();
  world_.RunFor(absl::Hours(1));
  EXPECT_EQ(world_.scheduler().steps(), steps);
}

// Destruction.

TEST_F(DataPlaneTest, ADestroyedPlaneReleasesEverythingWithoutCallbacks) {
  SimPlane& a = world_.Add("a");
  SimPlane& b = world_.Add("b");
  a.shelf.Put(Id(1), Gen(), EmptyBuffer(kMiB));
  const StartedPull pull = b.Pull(a, Id(1), EmptyBuffer(kMiB));
  world_.RunFor(absl::Milliseconds(10));
  ASSERT_EQ(a.shelf.pins(), 1);
  b.Stop();
  world_.RunFor(absl::Seconds(1));
  EXPECT_FALSE(pull.done());
  EXPECT_EQ(a.shelf.pins(), 0) << "the sender sees the connection end";
  EXPECT_EQ(world_.fabric().open_connections(), 0u);
}

TEST_F(DataPlaneTest, ASenderThatEndsReleasesItsPins) {
  SimPlane& a = world_.Add("a");
  SimPlane& b = world_.Add("b");
  a.shelf.Put(Id(1), Gen(), EmptyBuffer(kMiB));
  const StartedPull pull = b.Pull(a, Id(1), EmptyBuffer(kMiB));
  world_.RunFor(absl::Milliseconds(10));
  a.Stop();
  EXPECT_EQ(a.shelf.pins(), 1) << "only once the I/O loop has let go of the bytes";
  ASSERT_TRUE(world_.RunUntilDone(pull));
  EXPECT_THAT(pull.status(), StatusIs(absl::StatusCode::kUnavailable));
  EXPECT_EQ(a.shelf.pins(), 0);
  EXPECT_EQ(a.shelf.released_elsewhere(), 0);
}

TEST_F(DataPlaneTest, ADeadProcessIsDetectedAtOnce) {
  SimPlane& a = world_.Add("a");
  SimPlane& b = world_.Add("b");
  a.shelf.Put(Id(1), Gen(), EmptyBuffer(kMiB));
  const StartedPull pull = b.Pull(a, Id(1), EmptyBuffer(kMiB));
  world_.RunFor(absl::Milliseconds(10));
  a.process().Kill();
  EXPECT_LT(world_.TimeUntilDone(pull), absl::Milliseconds(1));
  EXPECT_THAT(pull.status(), StatusIs(absl::StatusCode::kUnavailable));
}

TEST(DataPlane, ARefusedPeerIsReportedWithTheCause) {
  SimPlanes world;
  std::vector<std::string> reasons;
  DataPlaneOptions here;
  here.on_rejected_peer = [&](absl::string_view peer, const absl::Status& reason) {
    EXPECT_FALSE(peer.empty());
    reasons.emplace_back(reason.message());
  };
  DataPlaneOptions elsewhere;
  elsewhere.handshake.cluster_id = "elsewhere";
  SimPlane& a = world.Add("a", here);
  SimPlane& b = world.Add("b", elsewhere);
  ASSERT_TRUE(world.RunUntilDone(b.Pull(a, Id(1), EmptyBuffer(10))));
  world.RunFor(absl::Milliseconds(10));
  EXPECT_EQ(a.plane().stats().handshakes_refused, 1u);
  ASSERT_EQ(reasons.size(), 1u);
  EXPECT_THAT(reasons[0], HasSubstr("elsewhere"));
}

}  // namespace
}  // namespace phalanx::net
