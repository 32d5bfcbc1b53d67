#include "src/sim/seams/sim_network.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "src/common/testing/seed.h"
#include "src/common/testing/status_matchers.h"
#include "src/net/stream/byte_stream_conformance.h"

namespace phalanx::sim {
namespace {

using ::phalanx::testing::IsOk;
using ::phalanx::testing::IsOkAndHolds;
using ::phalanx::testing::StatusIs;
using ::testing::HasSubstr;

class SimNetworkHarness final : public net::NetworkHarness {
 public:
  explicit SimNetworkHarness(const SimFabric::Options& options, bool shuffle = false)
      : scheduler_({.seed = options.seed, .shuffle_ties = shuffle}), fabric_(scheduler_, options) {}

  Party client() override { return {*networks_[0], client_loop_}; }
  Party server() override { return {*networks_[1], server_loop_}; }
  net::Address listen_address() override { return "b:0"; }
  net::Address foreign_address() override { return "a:0"; }
  void Run(std::function<void(std::function<void()> done)> body) override {
    bool finished = false;
    client_loop_.Post([&body, &finished] { body([&finished] { finished = true; }); });
    EXPECT_TRUE(scheduler_.RunUntil([&finished] { return finished; }, absl::Hours(1)));
  }

 private:
  SimScheduler scheduler_;
  SimFabric fabric_;
  const std::unique_ptr<SimProcess> processes_[2] = {scheduler_.NewProcess("a"),
                                                     scheduler_.NewProcess("b")};
  SimExecutor& client_loop_ = processes_[0]->NewExecutor("loop");
  SimExecutor& server_loop_ = processes_[1]->NewExecutor("loop");
  const std::unique_ptr<SimNetwork> networks_[2] = {fabric_.Join(*processes_[0], "a"),
                                                    fabric_.Join(*processes_[1], "b")};
};

std::unique_ptr<net::NetworkHarness> MakePlain() {
  return std::make_unique<SimNetworkHarness>(SimFabric::Options{});
}
std::unique_ptr<net::NetworkHarness> MakeRough() {
  SimFabric::Options options;
  options.seed = 7;
  options.link = {.latency = absl::Milliseconds(3), .jitter = absl::Milliseconds(2)};
  options.interface_bytes_per_second = 1e9;
  options.short_io = 0.5;
  return std::make_unique<SimNetworkHarness>(options, /*shuffle=*/true);
}

}  // namespace
}  // namespace phalanx::sim

namespace phalanx::net {
INSTANTIATE_TEST_SUITE_P(Sim, ByteStreamConformance,
                         ::testing::Values(&sim::MakePlain, &sim::MakeRough));
}  // namespace phalanx::net

namespace phalanx::sim {
namespace {

// A node of the tests below: reads all bytes and records their times.
struct Node {
  Node(SimScheduler& scheduler, SimFabric& fabric, const std::string& host,
       const std::string& label = "")
      : process(scheduler.NewProcess(host)),
        loop(process->NewExecutor("loop")),
        network(fabric.Join(*process, host, label)) {}

  // Streams go before the network.
  std::unique_ptr<SimProcess> process;
  SimExecutor& loop;
  std::unique_ptr<SimNetwork> network;
  std::unique_ptr<net::Listener> listener;
  std::unique_ptr<net::ByteStream> stream;
  size_t received = 0;
  absl::Status status;

  void ReadForEver() {
    char buffer[4096];
    const iovec into = {buffer, sizeof(buffer)};
    while (stream != nullptr) {
      const auto got = stream->Read({&into, 1});
      if (!got.ok()) {
        status = got.status();
        return;
      }
      received += *got;
      if (*got == 0) {
        stream->OnReadable([this] { ReadForEver(); });
        return;
      }
    }
  }

  // Writes `size` zeros as fast as they are taken.
  void WriteAll(size_t size) {
    std::string zeros(64 << 10, '\0');
    while (size > 0) {
      const iovec from = {zeros.data(), std::min(size, zeros.size())};
      const auto wrote = stream->Write({&from, 1});
      if (!wrote.ok()) {
        status = wrote.status();
        return;
      }
      size -= *wrote;
      if (*wrote == 0) {
        stream->OnWritable([this, size] { WriteAll(size); });
        return;
      }
    }
  }
};

class SimNetworkTest : public ::testing::Test {
 protected:
  // A connection from a to b; b reads.
  void Connect(Node& a, Node& b) {
    b.listener = *b.network->Listen(
        b.loop, b.network->host() + ":0", [&b]() -> Executor& { return b.loop; },
        [&b](Executor&, std::unique_ptr<net::ByteStream> stream) {
          b.stream = std::move(stream);
          b.ReadForEver();
        });
    a.network->Dial(a.loop, b.listener->address(), Instant::Infinite(),
                    [&a](auto stream) { a.stream = *std::move(stream); });
    ASSERT_TRUE(scheduler_.RunUntil([&] { return a.stream && b.stream; }, absl::Seconds(10)));
  }

  // How long it takes to carry `size` bytes over the connection.
  absl::Duration TimeToCarry(Node& a, Node& b, size_t size) {
    const Instant start = scheduler_.now();
    const size_t before = b.received;
    a.WriteAll(size);
    EXPECT_TRUE(scheduler_.RunUntil([&] { return b.received == before + size; }, absl::Hours(1)));
    return scheduler_.now() - start;
  }

  SimScheduler scheduler_{{}};
  SimFabric fabric_{scheduler_, {}};
};

TEST_F(SimNetworkTest, TransferTimeFollowsLatencyAndBandwidth) {
  Node a(scheduler_, fabric_, "a"), b(scheduler_, fabric_, "b");
  Connect(a, b);
  fabric_.SetLink("a", "b", {.latency = absl::Milliseconds(10)});
  EXPECT_EQ(TimeToCarry(a, b, 1), absl::Milliseconds(10));
  fabric_.SetLink("a", "b", {.latency = absl::Milliseconds(1), .bytes_per_second = 1e6});
  EXPECT_EQ(TimeToCarry(a, b, 1'000'000), absl::Milliseconds(1001));
  EXPECT_EQ(a.stream->RoundTrip(), absl::Milliseconds(1) + absl::Microseconds(50));
  EXPECT_EQ(fabric_.BytesCarried("a", "b"), 1'000'001u);
}

TEST_F(SimNetworkTest, LinksAreChosenByHostsThenByLabels) {
  Node a(scheduler_, fabric_, "a", "east"), b(scheduler_, fabric_, "b", "west");
  fabric_.SetLabelLink("east", "west", {.latency = absl::Milliseconds(30)});
  EXPECT_EQ(fabric_.GetLink("a", "b").latency, absl::Milliseconds(30));
  EXPECT_EQ(fabric_.GetLink("b", "a").latency, absl::Microseconds(50));
  fabric_.SetLink("a", "b", {.latency = absl::Milliseconds(3)});
  EXPECT_EQ(fabric_.GetLink("a", "b").latency, absl::Milliseconds(3));
  EXPECT_EQ(fabric_.GetLink("a", "a").latency, absl::Microseconds(5));
}

TEST_F(SimNetworkTest, AnInterfaceIsSharedByTheLinksOfItsHost) {
  Node a(scheduler_, fabric_, "a"), b(scheduler_, fabric_, "b");
  Node c(scheduler_, fabric_, "c"), d(scheduler_, fabric_, "d");
  fabric_.SetInterface("a", 1e6);
  Connect(a, b);
  Connect(c, d);
  // A second connection out of a, made by hand: c's stream is replaced by one of a's.
  c.stream.reset();
  d.received = 0;
  std::unique_ptr<net::ByteStream> second;
  a.network->Dial(a.loop, d.listener->address(), Instant::Infinite(),
                  [&](auto stream) { second = *std::move(stream); });
  ASSERT_TRUE(scheduler_.RunUntil([&] { return second != nullptr; }, absl::Seconds(1)));
  const Instant start = scheduler_.now();
  std::string bytes(200'000, 'x');
  const iovec from = {bytes.data(), bytes.size()};
  ASSERT_THAT(a.stream->Write({&from, 1}), IsOkAndHolds(bytes.size()));
  ASSERT_THAT(second->Write({&from, 1}), IsOkAndHolds(bytes.size()));
  ASSERT_TRUE(scheduler_.RunUntil(
      [&] { return b.received == bytes.size() && d.received == bytes.size(); }, absl::Hours(1)));
  EXPECT_EQ(scheduler_.now() - start, absl::Milliseconds(400) + absl::Microseconds(50));
}

TEST_F(SimNetworkTest, AReceivingInterfaceIsALimitToo) {
  Node a(scheduler_, fabric_, "a"), b(scheduler_, fabric_, "b");
  Connect(a, b);
  fabric_.SetInterface("b", 1e6);
  const absl::Duration took = TimeToCarry(a, b, 1'000'000);
  EXPECT_GE(took, absl::Milliseconds(1000));
  EXPECT_LE(took, absl::Milliseconds(1010));
}

TEST_F(SimNetworkTest, AResetFailsBothEndsAtOnce) {
  Node a(scheduler_, fabric_, "a"), b(scheduler_, fabric_, "b");
  Connect(a, b);
  bool readable = false;
  a.stream->OnReadable([&readable] { readable = true; });
  fabric_.Reset("b", "a");
  scheduler_.RunFor(absl::ZeroDuration());
  EXPECT_TRUE(readable);
  EXPECT_THAT(b.status, StatusIs(absl::StatusCode::kUnavailable, HasSubstr("was reset")));
  EXPECT_THAT(a.stream->Read({}), StatusIs(absl::StatusCode::kUnavailable));
  EXPECT_THAT(a.stream->Write({}), StatusIs(absl::StatusCode::kUnavailable));
  a.stream.reset();
  b.stream.reset();
  EXPECT_EQ(fabric_.open_connections(), 0u);
}

TEST_F(SimNetworkTest, AHalfOpenConnectionCarriesOneDirectionWithoutAnError) {
  Node a(scheduler_, fabric_, "a"), b(scheduler_, fabric_, "b");
  Connect(a, b);
  fabric_.HalfOpen("a", "b");
  a.ReadForEver();
  a.WriteAll(10 << 20);
  b.WriteAll(1000);
  scheduler_.RunFor(absl::Hours(1));
  EXPECT_EQ(b.received, 0u);
  PHALANX_EXPECT_OK(a.status);
  PHALANX_EXPECT_OK(b.status);
  EXPECT_EQ(a.received, 1000u);
  // A new connection is not affected.
  Node c(scheduler_, fabric_, "a");
  Connect(c, b);
  EXPECT_EQ(TimeToCarry(c, b, 1000), absl::Microseconds(50));
}

TEST_F(SimNetworkTest, APartitionHoldsBytesBackUntilItHeals) {
  Node a(scheduler_, fabric_, "a"), b(scheduler_, fabric_, "b");
  Connect(a, b);
  a.ReadForEver();
  a.WriteAll(100'000);  // under way when the link breaks
  scheduler_.RunFor(absl::Microseconds(10));
  fabric_.Partition("a", "b");
  b.WriteAll(1000);
  scheduler_.RunFor(absl::Minutes(1));
  EXPECT_EQ(b.received, 0u);
  EXPECT_EQ(a.received, 1000u) << "the other direction is open";
  fabric_.Heal("a", "b");
  scheduler_.RunFor(absl::Seconds(1));
  EXPECT_EQ(b.received, 100'000u);
}

TEST_F(SimNetworkTest, WithoutAcknowledgementsTheWindowRunsOut) {
  Node a(scheduler_, fabric_, "a"), b(scheduler_, fabric_, "b");
  Connect(a, b);
  fabric_.Partition("b", "a");
  a.WriteAll(10 << 20);
  scheduler_.RunFor(absl::Minutes(1));
  EXPECT_EQ(b.received, size_t{256 << 10});
  fabric_.HealAll();
  scheduler_.RunFor(absl::Minutes(1));
  EXPECT_EQ(b.received, size_t{10 << 20});
}

TEST_F(SimNetworkTest, ARefusalIsOfNewConnectionsInOneDirection) {
  Node a(scheduler_, fabric_, "a"), b(scheduler_, fabric_, "b");
  Connect(a, b);
  const std::string address = b.listener->address();
  fabric_.Refuse("a", "b");
  a.WriteAll(1000);
  absl::Status refused;
  const auto dial = [&](absl::Status& result) {
    a.network->Dial(a.loop, address, a.loop.Now() + absl::Seconds(1),
                    [&](auto stream) { result = stream.status(); });
    scheduler_.RunFor(absl::Seconds(1));
  };
  dial(refused);
  EXPECT_THAT(refused, StatusIs(absl::StatusCode::kUnavailable, HasSubstr("refused by b")));
  EXPECT_EQ(b.received, 1000u) << "the open connection stays";
  fabric_.Heal("a", "b");
  absl::Status accepted;
  dial(accepted);
  EXPECT_THAT(accepted, IsOk());
}

TEST_F(SimNetworkTest, DialingThroughAPartitionTakesUntilItHealsOrTheDeadline) {
  Node a(scheduler_, fabric_, "a"), b(scheduler_, fabric_, "b");
  fabric_.PartitionBothWays("a", "b");
  b.listener = *b.network->Listen(
      b.loop, "b:7400", [&b]() -> Executor& { return b.loop; },
      [&b](Executor&, auto stream) { b.stream = std::move(stream); });
  absl::Status early;
  a.network->Dial(a.loop, "b:7400", a.loop.Now() + absl::Seconds(1),
                  [&](auto stream) { early = stream.status(); });
  a.network->Dial(a.loop, "b:7400", a.loop.Now() + absl::Seconds(9),
                  [&](auto stream) { a.stream = *std::move(stream); });
  scheduler_.RunFor(absl::Seconds(5));
  EXPECT_THAT(early, StatusIs(absl::StatusCode::kDeadlineExceeded, HasSubstr("b:7400")));
  EXPECT_EQ(a.stream, nullptr);
  fabric_.HealAll();
  scheduler_.RunFor(absl::Seconds(1));
  EXPECT_NE(a.stream, nullptr);
  EXPECT_NE(b.stream, nullptr);
}

TEST_F(SimNetworkTest, AProcessThatDiesClosesItsConnectionsAndFreesItsPorts) {
  auto a = std::make_unique<Node>(scheduler_, fabric_, "a");
  Node b(scheduler_, fabric_, "b");
  Connect(*a, b);
  const auto listener = a->network->Listen(
      a->loop, "a:7400", [&a]() -> Executor& { return a->loop; }, [](auto&, auto) {});
  PHALANX_ASSERT_OK(listener);
  a->WriteAll(1000);
  a->process->Kill();
  scheduler_.RunFor(absl::Seconds(1));
  EXPECT_EQ(b.received, 1000u);
  EXPECT_THAT(b.status, StatusIs(absl::StatusCode::kOutOfRange));
  EXPECT_THAT(a->stream->Write({}), StatusIs(absl::StatusCode::kUnavailable));

  Node reborn(scheduler_, fabric_, "a");
  PHALANX_EXPECT_OK(reborn.network->Listen(
      reborn.loop, "a:7400", [&]() -> Executor& { return reborn.loop; }, [](auto&, auto) {}));
}

TEST_F(SimNetworkTest, BytesForAStalledProcessWaitInItsKernel) {
  Node a(scheduler_, fabric_, "a"), b(scheduler_, fabric_, "b");
  Connect(a, b);
  b.process->Stall();
  a.WriteAll(1000);
  scheduler_.RunFor(absl::Minutes(1));
  EXPECT_EQ(b.received, 0u);
  // The kernel accepts for it, too.
  std::unique_ptr<net::ByteStream> second;
  a.network->Dial(a.loop, b.listener->address(), Instant::Infinite(),
                  [&](auto stream) { second = *std::move(stream); });
  scheduler_.RunFor(absl::Seconds(1));
  EXPECT_NE(second, nullptr);
  b.process->Resume();
  scheduler_.RunFor(absl::Seconds(1));
  EXPECT_GE(b.received, 1000u);
}

TEST_F(SimNetworkTest, MovesOneByteAtATimeIfConfigured) {
  Node a(scheduler_, fabric_, "a"), b(scheduler_, fabric_, "b");
  Connect(a, b);
  fabric_.SetShortIo(0, /*one_byte_at_a_time=*/true);
  std::string bytes(100, 'x');
  const iovec from = {bytes.data(), bytes.size()};
  EXPECT_THAT(a.stream->Write({&from, 1}), IsOkAndHolds(1));
  scheduler_.RunFor(absl::Seconds(1));
  TimeToCarry(a, b, 1000);
}

TEST_F(SimNetworkTest, RefusesTheUseOfAStreamOnAnotherExecutor) {
  Node a(scheduler_, fabric_, "a"), b(scheduler_, fabric_, "b");
  Connect(a, b);
  b.loop.Post([&a] { a.stream->Close(); });
  EXPECT_DEATH(scheduler_.RunFor(absl::Seconds(1)), "used on its own executor");
}

// A rough world, traced: when each byte arrived.
std::string Trace(uint64_t seed) {
  SimScheduler scheduler({.seed = seed, .shuffle_ties = true});
  SimFabric fabric(scheduler, {.seed = seed,
                               .link = {.latency = absl::Milliseconds(1),
                                        .jitter = absl::Milliseconds(1),
                                        .bytes_per_second = 1e8},
                               .short_io = 0.3});
  Node a(scheduler, fabric, "a"), b(scheduler, fabric, "b");
  b.listener = *b.network->Listen(
      b.loop, "b:0", [&b]() -> Executor& { return b.loop; },
      [&b](Executor&, auto stream) {
        b.stream = std::move(stream);
        b.ReadForEver();
      });
  a.network->Dial(a.loop, b.listener->address(), Instant::Infinite(), [&a](auto stream) {
    a.stream = *std::move(stream);
    a.WriteAll(1'000'000);
  });
  std::string trace;
  size_t seen = 0;
  while (scheduler.Step()) {
    if (b.received == seen) continue;
    seen = b.received;
    absl::StrAppend(&trace, scheduler.now().nanos(), ":", seen, " ");
  }
  EXPECT_EQ(seen, 1'000'000u);
  return trace;
}

TEST(SimNetworkReplayTest, ReplaysExactlyFromItsSeed) {
  const uint64_t seed = testing::TestSeed(11);
  PHALANX_TRACE_SEED(seed);
  EXPECT_EQ(Trace(seed), Trace(seed));
  EXPECT_NE(Trace(seed), Trace(seed + 1));
}

}  // namespace
}  // namespace phalanx::sim
