// Micro benchmark of links over this machine's loopback: messages go back and forth between two
// nodes, each with its own threads.
//
//   links_benchmark --benchmark_repetitions=10 --benchmark_report_aggregates_only
//
// One iteration is kRounds round trips; round_trip_us is the mean time of one, and cpu_us the CPU
// time (of all threads, user and system) of one. The raw rows do the same with two threads that
// block in read(2) on a socket: divide two rows of one run.

#include <arpa/inet.h>
#include <benchmark/benchmark.h>
#include <netinet/tcp.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <functional>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "src/net/testing/tcp_links.h"

namespace phalanx::net {
namespace {

using testing::TcpLinkNode;

constexpr int kRounds = 1000;

double CpuSeconds() {
  rusage usage = {};
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_usec) * 1e-6;
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

void Require(bool good, const char* what) {
  if (good) return;
  std::fprintf(stderr, "benchmark failed: %s\n", what);
  std::exit(1);
}

// Calls `rounds` in each iteration.
void Measure(benchmark::State& state, const std::function<void()>& rounds) {
  rounds();
  const double cpu = CpuSeconds();
  for (auto _ : state) rounds();
  const auto total = static_cast<double>(state.iterations()) * kRounds;
  state.counters["round_trip_us"] =
      benchmark::Counter(total / 1e6, benchmark::Counter::kIsRate | benchmark::Counter::kInvert);
  state.counters["cpu_us"] = (CpuSeconds() - cpu) / total * 1e6;
}

// Reads each payload into one place, and answers until its rounds are over.
class Player final : public LinkReceiver {
 public:
  explicit Player(size_t bytes)
      : place_(bytes), payload_(std::make_shared<std::string>(bytes, 'x')) {}

  absl::StatusOr<absl::Span<char>> PlaceFor(const NodeKey&, absl::string_view,
                                            size_t payload_bytes) override {
    Require(payload_bytes == place_.size(), "a payload of the expected size");
    return absl::MakeSpan(place_);
  }
  void OnMessage(const NodeKey&, absl::string_view, absl::Span<char>) override {
    if (--rounds == 0) return over.set_value();
    Send();
  }
  void OnLost(const NodeKey&, const absl::Status&) override { Require(false, "no link is lost"); }

  void Send() {
    Require(self->links().Send(peer, LinkService::kMessages, "eight by", *payload_, payload_).ok(),
            "a message is sent");
  }

  TcpLinkNode* self = nullptr;
  LinkPeer peer;
  int rounds = -1;
  std::promise<void> over;

 private:
  std::vector<char> place_;
  const std::shared_ptr<std::string> payload_;
};

void LinkRoundTrip(benchmark::State& state) {
  const auto bytes = static_cast<size_t>(state.range(0));
  Player one(bytes), other(bytes);
  TcpLinkNode a(1, one), b(2, other);
  one.self = &a;
  one.peer = b.peer();
  other.self = &b;
  other.peer = a.peer();
  Measure(state, [&] {
    one.over = {};
    std::future<void> over = one.over.get_future();
    a.OnControl([&] {
      one.rounds = kRounds;
      one.Send();
    });
    over.wait();
  });
}
BENCHMARK(LinkRoundTrip)->Arg(8)->Arg(1 << 10)->Arg(64 << 10)->Arg(1 << 20)->UseRealTime();

void Transfer(int socket, char* bytes, size_t size, bool out) {
  for (size_t done = 0; done < size;) {
    const ssize_t part = out ? send(socket, bytes + done, size - done, MSG_NOSIGNAL)
                             : recv(socket, bytes + done, size - done, 0);
    Require(part > 0, "a socket transfers");
    done += static_cast<size_t>(part);
  }
}

struct SocketPair {
  SocketPair() {
    const int listener = socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof(address);
    auto* const any = reinterpret_cast<sockaddr*>(&address);
    Require(bind(listener, any, size) == 0 && listen(listener, 1) == 0 &&
                getsockname(listener, any, &size) == 0,
            "a listener");
    ends[0] = socket(AF_INET, SOCK_STREAM, 0);
    Require(connect(ends[0], any, size) == 0, "a connection");
    ends[1] = accept(listener, nullptr, nullptr);
    close(listener);
    for (const int end : ends) {
      const int on = 1;
      setsockopt(end, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    }
  }
  ~SocketPair() {
    for (const int end : ends) close(end);
  }
  int ends[2];
};

void RawRoundTrip(benchmark::State& state) {
  const auto bytes = static_cast<size_t>(state.range(0));
  SocketPair pair;
  std::thread other([&] {
    std::vector<char> block(bytes);
    for (;;) {
      char more = 0;
      Transfer(pair.ends[1], &more, 1, /*out=*/false);
      if (more == 0) return;
      for (int i = 0; i < kRounds; ++i) {
        Transfer(pair.ends[1], block.data(), bytes, /*out=*/false);
        Transfer(pair.ends[1], block.data(), bytes, /*out=*/true);
      }
    }
  });
  std::vector<char> block(bytes);
  char more = 1;
  Measure(state, [&] {
    Transfer(pair.ends[0], &more, 1, /*out=*/true);
    for (int i = 0; i < kRounds; ++i) {
      Transfer(pair.ends[0], block.data(), bytes, /*out=*/true);
      Transfer(pair.ends[0], block.data(), bytes, /*out=*/false);
    }
  });
  more = 0;
  Transfer(pair.ends[0], &more, 1, /*out=*/true);
  other.join();
}
BENCHMARK(RawRoundTrip)->Arg(8)->Arg(1 << 10)->Arg(64 << 10)->Arg(1 << 20)->UseRealTime();

}  // namespace
}  // namespace phalanx::net

BENCHMARK_MAIN();
