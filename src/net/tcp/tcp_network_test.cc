#include "src/net/tcp/tcp_network.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <atomic>
#include <future>
#include <optional>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "src/common/testing/status_matchers.h"
#include "src/net/loop/event_loop.h"
#include "src/net/stream/byte_stream_conformance.h"
#include "src/net/tcp/socket_address.h"
#include "src/net/tcp/unique_fd.h"

namespace phalanx::net {
namespace {

using ::phalanx::testing::IsOkAndHolds;
using ::phalanx::testing::StatusIs;
using ::testing::HasSubstr;
using ::testing::StartsWith;

class TcpHarness final : public NetworkHarness {
 public:
  explicit TcpHarness(Address listen) : listen_(std::move(listen)) {
    PHALANX_EXPECT_OK(loop_.Start("conformance"));
  }
  Party client() override { return {network_, loop_}; }
  Party server() override { return {network_, loop_}; }
  Address listen_address() override { return listen_; }
  // An address of the block that is reserved for examples.
  Address foreign_address() override { return "192.0.2.1:0"; }
  void Run(std::function<void(std::function<void()> done)> body) override {
    std::promise<void> finished;
    loop_.Post([&body, &finished] { body([&finished] { finished.set_value(); }); });
    finished.get_future().wait();
  }

 private:
  const Address listen_;
  EventLoop loop_;
  TcpNetwork network_;
};

std::unique_ptr<NetworkHarness> MakeIpv4() { return std::make_unique<TcpHarness>("127.0.0.1:0"); }
std::unique_ptr<NetworkHarness> MakeIpv6() { return std::make_unique<TcpHarness>("[::1]:0"); }

INSTANTIATE_TEST_SUITE_P(Tcp, ByteStreamConformance, ::testing::Values(&MakeIpv4, &MakeIpv6));

// One loop for the network, and another one.
class TcpNetworkTest : public ::testing::Test {
 protected:
  TcpNetworkTest() {
    PHALANX_EXPECT_OK(loop_.Start("network"));
    PHALANX_EXPECT_OK(other_.Start("other"));
  }

  // Runs `body` on a loop and waits for it.
  static void On(EventLoop& loop, std::function<void()> body) {
    std::promise<void> done;
    loop.Post([&body, &done] {
      body();
      done.set_value();
    });
    done.get_future().wait();
  }

  std::unique_ptr<Listener> Listen(const Address& on, std::function<Executor&()> pick,
                                   Network::Accepted accepted) {
    std::unique_ptr<Listener> listener;
    On(loop_, [&] {
      auto made = network_.Listen(loop_, on, std::move(pick), std::move(accepted));
      PHALANX_EXPECT_OK(made);
      if (made.ok()) listener = *std::move(made);
    });
    return listener;
  }

  // Not shared with the loop: the system's Abseil counts the references of a Status where
  // ThreadSanitizer does not see it, and would report a false race.
  static absl::StatusOr<std::unique_ptr<ByteStream>> OwnStatus(
      absl::StatusOr<std::unique_ptr<ByteStream>> stream) {
    if (stream.ok()) return stream;
    return absl::Status(stream.status().code(), stream.status().message());
  }

  absl::StatusOr<std::unique_ptr<ByteStream>> Dial(const Address& to,
                                                   absl::Duration timeout = absl::Seconds(20)) {
    std::promise<absl::StatusOr<std::unique_ptr<ByteStream>>> done;
    loop_.Post([&] {
      network_.Dial(loop_, to, loop_.Now() + timeout,
                    [&](auto stream) { done.set_value(OwnStatus(std::move(stream))); });
    });
    return done.get_future().get();
  }

  EventLoop loop_;
  EventLoop other_;
  TcpNetwork network_;
};

TEST_F(TcpNetworkTest, PassesStreamsToThePickedExecutor) {
  std::promise<void> accepted;
  std::unique_ptr<ByteStream> stream;
  auto listener = Listen(
      "127.0.0.1:0", [this]() -> Executor& { return other_; },
      [&](Executor& owner, std::unique_ptr<ByteStream> made) {
        EXPECT_EQ(&owner, &other_);
        EXPECT_TRUE(other_.InLoop());
        stream = std::move(made);
        accepted.set_value();
      });
  auto dialled = Dial(listener->address());
  PHALANX_ASSERT_OK(dialled);
  accepted.get_future().wait();
  On(other_, [&] { stream.reset(); });
  On(loop_, [&] {
    dialled->reset();
    listener.reset();
  });
}

TEST_F(TcpNetworkTest, DialsAndListensByName) {
  auto listener = Listen(
      "localhost:0", [this]() -> Executor& { return loop_; }, [](auto&, auto) {});
  PHALANX_ASSERT_OK_AND_ASSIGN(const HostPort bound, ParseHostPort(listener->address()));
  auto dialled = Dial(absl::StrCat("localhost:", bound.port));
  PHALANX_ASSERT_OK(dialled);
  EXPECT_THAT((*dialled)->peer(), StartsWith("localhost:"));
  EXPECT_THAT(Dial("no-such-name.invalid:7400"),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr("no-such-name.invalid:7400")));
  On(loop_, [&] {
    dialled->reset();
    listener.reset();
  });
}

TEST_F(TcpNetworkTest, EveryAddressMeansIpv4Too) {
  auto listener = Listen(
      "[::]:0", [this]() -> Executor& { return loop_; }, [](auto&, auto) {});
  PHALANX_ASSERT_OK_AND_ASSIGN(const HostPort bound, ParseHostPort(listener->address()));
  for (const char* host : {"127.0.0.1:", "[::1]:"}) {
    auto dialled = Dial(absl::StrCat(host, bound.port));
    PHALANX_EXPECT_OK(dialled);
    On(loop_, [&] { dialled->reset(); });
  }
  On(loop_, [&] { listener.reset(); });
}

TEST_F(TcpNetworkTest, AnUnansweredDialEndsAtItsDeadline) {
  // A full queue of connections: the system does not answer further ones.
  UniqueFd deaf(socket(AF_INET, SOCK_STREAM, 0));
  SocketAddress address = NumericAddress({"127.0.0.1", 0}).at(0);
  ASSERT_EQ(bind(deaf.get(), address.get(), address.size), 0);
  ASSERT_EQ(listen(deaf.get(), 0), 0);
  ASSERT_EQ(getsockname(deaf.get(), address.get(), &address.size), 0);
  std::vector<UniqueFd> fill;
  for (int i = 0; i < 4; ++i) {
    fill.emplace_back(socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0));
    connect(fill.back().get(), address.get(), address.size);
  }
  EXPECT_THAT(Dial(address.ToString(), absl::Milliseconds(30)),
              StatusIs(absl::StatusCode::kDeadlineExceeded, HasSubstr(address.ToString())));
}

TEST_F(TcpNetworkTest, AStoppedLoopDestroysItsDials) {
  auto owned = std::make_shared<int>();
  On(other_, [&] {
    network_.Dial(other_, "127.0.0.1:1", other_.Now() + absl::Hours(1), [owned](auto) {});
    network_.Dial(other_, "localhost:1", Instant::Infinite(), [owned](auto) {});
    other_.Stop();
  });
  other_.Stop();
  EXPECT_EQ(owned.use_count(), 1);
}

TEST_F(TcpNetworkTest, AListenerSurvivesALackOfDescriptors) {
#ifdef PHALANX_ASAN
  GTEST_SKIP() << "the sanitizers open descriptors themselves when they check a pointer";
#endif
  std::vector<std::unique_ptr<ByteStream>> streams;
  std::atomic<int> accepted = 0;
  auto listener = Listen(
      "127.0.0.1:0", [this]() -> Executor& { return loop_; },
      [&](Executor&, std::unique_ptr<ByteStream> stream) {
        streams.push_back(std::move(stream));
        ++accepted;
      });
  PHALANX_ASSERT_OK_AND_ASSIGN(const HostPort bound, ParseHostPort(listener->address()));
  const SocketAddress address = NumericAddress(bound).at(0);
  // Two sockets to dial with. All other descriptors are in use.
  UniqueFd first(socket(AF_INET, SOCK_STREAM, 0)), second(socket(AF_INET, SOCK_STREAM, 0));
  rlimit limit;
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &limit), 0);
  const rlimit few = {128, limit.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &few), 0);
  std::vector<UniqueFd> used;
  while (true) {
    UniqueFd fd(open("/dev/null", O_RDONLY));
    if (!fd.valid()) break;
    used.push_back(std::move(fd));
  }
  ASSERT_EQ(connect(first.get(), address.get(), address.size), 0);
  char byte;
  EXPECT_LE(recv(first.get(), &byte, 1, 0), 0) << "turned away";
  EXPECT_EQ(accepted, 0);

  used.clear();
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &limit), 0);
  ASSERT_EQ(connect(second.get(), address.get(), address.size), 0);
  std::promise<void> served;
  std::function<void()> look = [&] {
    if (accepted == 1) return served.set_value();
    loop_.RunAt(loop_.Now() + absl::Milliseconds(5), look);
  };
  loop_.Post(look);
  served.get_future().wait();
  On(loop_, [&] {
    streams.clear();
    listener.reset();
  });
}

TEST_F(TcpNetworkTest, AnUnsentLimitBoundsTheBytesInTheKernel) {
  std::unique_ptr<ByteStream> reader;
  std::promise<void> accepted;
  auto listener = Listen(
      "127.0.0.1:0", [this]() -> Executor& { return loop_; },
      [&](Executor&, std::unique_ptr<ByteStream> stream) {
        reader = std::move(stream);
        accepted.set_value();
      });
  auto writer = Dial(listener->address());
  PHALANX_ASSERT_OK(writer);
  accepted.get_future().wait();
  // Fills the window of the peer first, so that later bytes stay unsent.
  size_t bounded = 0, unbounded = 0;
  const auto fill = [&](size_t& taken) {
    std::string bytes(64 << 10, 'x');
    while (true) {
      const iovec from = {bytes.data(), bytes.size()};
      const auto wrote = (*writer)->Write({&from, 1});
      PHALANX_ASSERT_OK(wrote);
      if (*wrote == 0) return;
      taken += *wrote;
    }
  };
  On(loop_, [&] {
    (*writer)->SetUnsentLimit(32 << 10);
    fill(bounded);
    (*writer)->SetUnsentLimit(1 << 30);
    fill(unbounded);
    reader.reset();
    writer->reset();
    listener.reset();
  });
  EXPECT_GT(unbounded, size_t{256 << 10}) << "the kernel would have taken much more";
}

TEST_F(TcpNetworkTest, AnAddressIsPrintedAsItIsWritten) {
  for (const char* text : {"10.0.0.7:7400", "[fe80::1]:7400", "[::1]:0"}) {
    PHALANX_ASSERT_OK_AND_ASSIGN(const HostPort host_port, ParseHostPort(text));
    const auto addresses = NumericAddress(host_port);
    ASSERT_EQ(addresses.size(), 1u);
    EXPECT_EQ(addresses[0].ToString(), text);
  }
  EXPECT_EQ(NumericAddress({"::ffff:10.0.0.7", 1}).at(0).ToString(), "10.0.0.7:1");
  EXPECT_TRUE(NumericAddress({"localhost", 1}).empty());
}

}  // namespace
}  // namespace phalanx::net
