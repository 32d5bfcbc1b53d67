// The data plane over real sockets and threads: the main cases of data_plane_test.cc and
// data_plane_fault_test.cc, and errors that need threads.
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "src/common/testing/status_matchers.h"
#include "src/net/plane/data_plane.h"
#include "src/net/testing/tcp_plane.h"

namespace phalanx::net {
namespace {

using ::phalanx::testing::StatusIs;
using testing::EmptyBuffer;
using testing::FirstWrongByte;
using testing::Gen;
using testing::Grow;
using testing::Id;
using testing::TcpPlane;
using testing::WholeBuffer;

constexpr uint64_t kMiB = uint64_t{1} << 20;

DataPlaneOptions WithChecksums() {
  DataPlaneOptions options;
  options.checksums = true;
  return options;
}

TEST(DataPlaneTcp, APullTransfersEveryByte) {
  TcpPlane a(1);
  TcpPlane b(2);
  a.Put(Id(1), WholeBuffer(12 * kMiB + 17, 3));
  auto into = EmptyBuffer(12 * kMiB + 17, 3);
  const PullOutcome outcome = b.Start(a, Id(1), into).outcome.get();
  PHALANX_ASSERT_OK(outcome.status);
  EXPECT_TRUE(into->complete());
  EXPECT_EQ(FirstWrongByte(*into), std::nullopt);
  EXPECT_GT(outcome.bytes_per_second, 0);
  EXPECT_GT(outcome.first_byte, absl::ZeroDuration());
}

TEST(DataPlaneTcp, WithChecksumsToo) {
  TcpPlane a(1);
  TcpPlane b(2, WithChecksums());
  a.Put(Id(1), WholeBuffer(8 * kMiB));
  auto into = EmptyBuffer(8 * kMiB);
  PHALANX_ASSERT_OK(b.Start(a, Id(1), into).outcome.get().status);
  EXPECT_TRUE(into->complete());
  EXPECT_EQ(FirstWrongByte(*into), std::nullopt);
}

TEST(DataPlaneTcp, ManySmallPullsShareFewConnections) {
  TcpPlane a(1);
  TcpPlane b(2);
  a.Put(Id(1), WholeBuffer(100));
  for (int i = 0; i < 300; ++i) {
    auto into = EmptyBuffer(100);
    PHALANX_ASSERT_OK(b.Start(a, Id(1), into).outcome.get().status);
    ASSERT_EQ(FirstWrongByte(*into), std::nullopt);
  }
  EXPECT_EQ(b.stats().connections, 1);
}

TEST(DataPlaneTcp, AChainOfEightRelaysRunsConcurrently) {
  const uint64_t size = 8 * kMiB;
  std::vector<std::unique_ptr<TcpPlane>> nodes;
  for (uint64_t i = 0; i <= 8; ++i) nodes.push_back(std::make_unique<TcpPlane>(i + 1));
  auto source = EmptyBuffer(size);
  nodes[0]->Put(Id(1), source);
  std::vector<std::shared_ptr<TransferBuffer>> copies;
  std::vector<TcpPlane::Pull> pulls;
  for (size_t i = 1; i < nodes.size(); ++i) {
    copies.push_back(EmptyBuffer(size));
    nodes[i]->Put(Id(1), copies.back());
    pulls.push_back(nodes[i]->Start(*nodes[i - 1], Id(1), copies.back()));
  }
  // The writer is slower at first, so all relays are starved from the start.
  for (uint64_t n = 0; n <= size; n += 100'000) Grow(*source, 0, n);
  Grow(*source, 0, size);
  for (size_t i = 0; i < pulls.size(); ++i) {
    PHALANX_EXPECT_OK(pulls[i].outcome.get().status);
    EXPECT_TRUE(copies[i]->complete());
    EXPECT_EQ(FirstWrongByte(*copies[i]), std::nullopt);
  }
}

TEST(DataPlaneTcp, ACancelledPullIsResumedOverTheSameConnection) {
  TcpPlane a(1);
  TcpPlane b(2);
  a.Put(Id(1), WholeBuffer(24 * kMiB));
  auto into = EmptyBuffer(24 * kMiB);
  int cancelled = 0;
  for (int i = 0; i < 10; ++i) {
    TcpPlane::Pull pull = b.Start(a, Id(1), into);
    b.Cancel(pull);
    const PullOutcome outcome = pull.outcome.get();
    cancelled += absl::IsCancelled(outcome.status) ? 1 : 0;
    ASSERT_TRUE(outcome.status.ok() || absl::IsCancelled(outcome.status)) << outcome.status;
  }
  EXPECT_GT(cancelled, 0);
  PHALANX_ASSERT_OK(b.Start(a, Id(1), into).outcome.get().status);
  EXPECT_TRUE(into->complete());
  EXPECT_EQ(FirstWrongByte(*into), std::nullopt);
}

TEST(DataPlaneTcp, PullsStartedAndCancelledFromManyLoopsAllEnd) {
  TcpPlane a(1, {}, 3);
  TcpPlane b(2, {}, 3);
  TcpPlane c(3, {}, 2);
  auto source = EmptyBuffer(4 * kMiB, 2);
  auto relay = EmptyBuffer(4 * kMiB, 2);
  a.Put(Id(1), source);
  b.Put(Id(1), relay);
  TcpPlane::Pull feed = b.Start(a, Id(1), relay);
  std::vector<std::shared_ptr<TransferBuffer>> copies;
  std::vector<TcpPlane::Pull> pulls;
  for (int i = 0; i < 24; ++i) {
    copies.push_back(EmptyBuffer(4 * kMiB, 2));
    pulls.push_back(c.Start(i % 2 == 0 ? a : b, Id(1), copies.back()));
    Grow(*source, 0, static_cast<uint64_t>(i) * 10'000);
    if (i % 3 == 0) c.Cancel(pulls[static_cast<size_t>(i / 2)]);
  }
  for (int slice = 0; slice < 2; ++slice) Grow(*source, slice, source->layout().Size(slice));
  PHALANX_EXPECT_OK(feed.outcome.get().status);
  for (size_t i = 0; i < pulls.size(); ++i) {
    const PullOutcome outcome = pulls[i].outcome.get();
    EXPECT_TRUE(outcome.status.ok() || absl::IsCancelled(outcome.status)) << outcome.status;
    EXPECT_EQ(outcome.status.ok(), copies[i]->complete());
    EXPECT_EQ(FirstWrongByte(*copies[i]), std::nullopt);
  }
}

TEST(DataPlaneTcp, AtTheLimitLoopsTakeIdleConnectionsFromOneAnother) {
  DataPlaneOptions few;
  few.max_connections = 2;
  TcpPlane a(1, few, 3);
  TcpPlane b(2, few, 3);
  TcpPlane c(3, few, 3);
  TcpPlane* const planes[] = {&a, &b, &c};
  for (TcpPlane* plane : planes) plane->Put(Id(1), WholeBuffer(1000));
  for (size_t round = 0; round < 100; ++round) {
    std::vector<TcpPlane::Pull> pulls;
    std::vector<std::shared_ptr<TransferBuffer>> copies;
    for (size_t i = 0; i < 3; ++i) {
      copies.push_back(EmptyBuffer(1000));
      pulls.push_back(planes[i]->Start(*planes[(i + 1 + round % 2) % 3], Id(1), copies.back()));
    }
    for (size_t i = 0; i < 3; ++i) {
      const PullOutcome outcome = pulls[i].outcome.get();
      EXPECT_EQ(outcome.status.ok(), copies[i]->complete()) << outcome.status;
      EXPECT_EQ(FirstWrongByte(*copies[i]), std::nullopt);
    }
  }
  // If all connections are idle there is room for each pull in turn. A sender can mark its
  // connection idle only after its receiver has everything.
  for (size_t i = 0; i < 9; ++i) {
    absl::Status status = absl::UnknownError("");
    for (int attempt = 0; attempt < 100 && !status.ok(); ++attempt) {
      status =
          planes[i % 3]->Start(*planes[(i + 1) % 3], Id(1), EmptyBuffer(1000)).outcome.get().status;
    }
    PHALANX_EXPECT_OK(status);
  }
}

TEST(DataPlaneTcp, AnotherSecretIsDenied) {
  DataPlaneOptions ours;
  ours.handshake.secret = "ours";
  TcpPlane a(1, ours);
  TcpPlane b(2);
  a.Put(Id(1), WholeBuffer(100));
  EXPECT_THAT(b.Start(a, Id(1), EmptyBuffer(100)).outcome.get().status,
              StatusIs(absl::StatusCode::kPermissionDenied));
}

TEST(DataPlaneTcp, AMissingPeerIsUnavailable) {
  TcpPlane b(2);
  // No process listens on port 1 of this loopback.
  EXPECT_THAT(b.Start({{9, 9}, "127.0.0.1:1", Id(1), Gen(), EmptyBuffer(100)}).outcome.get().status,
              StatusIs(absl::StatusCode::kUnavailable));
}

TEST(DataPlaneTcp, ADestroyedSenderIsUnavailableAtOnceAndAnotherResumes) {
  TcpPlane a(1);
  TcpPlane b(2);
  TcpPlane c(3);
  auto half = EmptyBuffer(8 * kMiB);
  Grow(*half, 0, 3 * kMiB);
  a.Put(Id(1), half);
  c.Put(Id(1), WholeBuffer(8 * kMiB));
  auto into = EmptyBuffer(8 * kMiB);
  TcpPlane::Pull pull = b.Start(a, Id(1), into);
  std::promise<void> there;
  EventLoop watcher;
  PHALANX_EXPECT_OK(watcher.Start("watcher"));
  const uint64_t seen = 3 * kMiB - 1;
  into->Subscribe(1, {seen}, watcher, [&there] { there.set_value(); });
  there.get_future().wait();
  a.Stop();
  EXPECT_THAT(pull.outcome.get().status, StatusIs(absl::StatusCode::kUnavailable));
  const PullOutcome rest = b.Start(c, Id(1), into).outcome.get();
  PHALANX_EXPECT_OK(rest.status);
  EXPECT_EQ(rest.bytes_received, 5 * kMiB);
  EXPECT_EQ(FirstWrongByte(*into), std::nullopt);
  watcher.Stop();
}

TEST(DataPlaneTcp, PinsAreReleasedOnTheControlLoop) {
  TcpPlane a(1);
  TcpPlane b(2);
  a.Put(Id(1), WholeBuffer(100));
  for (int i = 0; i < 20; ++i) {
    PHALANX_ASSERT_OK(b.Start(a, Id(1), EmptyBuffer(100)).outcome.get().status);
  }
  a.Put(Id(2), EmptyBuffer(100));
  TcpPlane::Pull pull = b.Start(a, Id(2), EmptyBuffer(100));
  // The pin is released in any case, whether the push has begun or not.
  a.Stop();
  EXPECT_THAT(pull.outcome.get().status, StatusIs(absl::StatusCode::kUnavailable));
  EXPECT_EQ(a.pins_released_elsewhere(), 0);
}

TEST(DataPlaneTcp, PlanesCanEndDuringTransfers) {
  for (int i = 0; i < 10; ++i) {
    auto into = EmptyBuffer(16 * kMiB);
    TcpPlane a(1, {}, 2);
    TcpPlane b(2, {}, 2);
    a.Put(Id(1), WholeBuffer(16 * kMiB));
    TcpPlane::Pull first = b.Start(a, Id(1), into);
    TcpPlane::Pull second = b.Start(a, Id(1), EmptyBuffer(16 * kMiB));
    if (i % 2 == 0) b.Stop();
    if (i % 3 == 0) a.Stop();
  }
}

}  // namespace
}  // namespace phalanx::net
