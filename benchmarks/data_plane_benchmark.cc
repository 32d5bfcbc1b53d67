// Micro benchmark of the data plane over this machine's loopback. Each node has its own threads.
// Transfers go from one node to another, and along a chain of relays that stream.
//
//   data_plane_benchmark --benchmark_repetitions=10 --benchmark_report_aggregates_only
//
// Reports bytes per second at the last receiver, and CPU seconds (of all threads, user and system)
// per GB and hop. A hop is one send and one receive. After the warm-up every copy is verified once.
// The raw rows do the same with only two sockets and two threads: divide two rows of one run to get
// the share of the machine's limit.

#include <arpa/inet.h>
#include <benchmark/benchmark.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <thread>
#include <vector>

#include "src/net/testing/tcp_plane.h"

namespace phalanx::net {
namespace {

using testing::EmptyBuffer;
using testing::FirstWrongByte;
using testing::Gen;
using testing::Id;
using testing::TcpPlane;
using testing::WholeBuffer;

double CpuSeconds() {
  rusage usage = {};
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_usec) * 1e-6;
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

void Report(benchmark::State& state, uint64_t bytes, int hops, double cpu_seconds) {
  const double total = static_cast<double>(bytes) * static_cast<double>(state.iterations());
  state.SetBytesProcessed(static_cast<int64_t>(total));
  state.counters["cpu_s_per_GB_hop"] = cpu_seconds / (total / 1e9) / hops;
}

void Require(bool good, const char* what) {
  if (good) return;
  std::fprintf(stderr, "benchmark failed: %s\n", what);
  std::exit(1);
}

// Memory that is reused from one pull to the next, as in the store's pool of warm memory.
class WarmCopy {
 public:
  explicit WarmCopy(uint64_t bytes) : memory_(std::make_shared<std::vector<char>>(bytes)) {}
  std::shared_ptr<TransferBuffer> Fresh() {
    return std::make_shared<TransferBuffer>(SliceLayout{memory_->size(), 1},
                                            absl::MakeSpan(*memory_), memory_);
  }

 private:
  const std::shared_ptr<std::vector<char>> memory_;
};

class Chain {
 public:
  Chain(int hops, uint64_t bytes, DataPlaneOptions options) {
    for (int i = 0; i <= hops; ++i) {
      nodes_.push_back(std::make_unique<TcpPlane>(static_cast<uint64_t>(i) + 1, options));
      copies_.emplace_back(bytes);
    }
    nodes_[0]->Put(Id(1), WholeBuffer(bytes));
  }

  // Starts all pulls at once, each from the node before. Returns when the last one has ended.
  void Run(bool verify) {
    std::vector<std::shared_ptr<TransferBuffer>> buffers;
    std::vector<TcpPlane::Pull> pulls;
    for (size_t i = 1; i < nodes_.size(); ++i) {
      buffers.push_back(copies_[i].Fresh());
      if (i + 1 < nodes_.size()) nodes_[i]->Put(Id(1), buffers.back());
      pulls.push_back(nodes_[i]->Start(*nodes_[i - 1], Id(1), buffers.back()));
    }
    for (TcpPlane::Pull& pull : pulls) Require(pull.outcome.get().status.ok(), "a pull");
    if (!verify) return;
    for (const auto& buffer : buffers) Require(!FirstWrongByte(*buffer).has_value(), "bytes");
  }

 private:
  std::vector<std::unique_ptr<TcpPlane>> nodes_;
  std::vector<WarmCopy> copies_;
};

void RunChain(benchmark::State& state, int hops, DataPlaneOptions options) {
  const uint64_t bytes = static_cast<uint64_t>(state.range(0));
  Chain chain(hops, bytes, options);
  chain.Run(/*verify=*/true);
  const double before = CpuSeconds();
  for (auto _ : state) chain.Run(/*verify=*/false);
  Report(state, bytes, hops, CpuSeconds() - before);
}

void BM_PointToPoint(benchmark::State& state) { RunChain(state, 1, {}); }
BENCHMARK(BM_PointToPoint)->Arg(1 << 10)->Arg(1 << 20)->Arg(256 << 20)->UseRealTime();

void BM_PointToPointChecked(benchmark::State& state) {
  DataPlaneOptions options;
  options.checksums = true;
  RunChain(state, 1, options);
}
BENCHMARK(BM_PointToPointChecked)->Arg(256 << 20)->UseRealTime();

void BM_ChainOfEight(benchmark::State& state) { RunChain(state, 8, {}); }
BENCHMARK(BM_ChainOfEight)->Arg(64 << 20)->UseRealTime();

// The limit: blocking calls of 256 KiB between two threads over TCP on loopback.
void BM_RawSockets(benchmark::State& state) {
  const size_t bytes = static_cast<size_t>(state.range(0));
  const int listener = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  auto* const generic = reinterpret_cast<sockaddr*>(&address);
  Require(bind(listener, generic, size) == 0 && listen(listener, 1) == 0, "listen");
  Require(getsockname(listener, generic, &size) == 0, "getsockname");
  const int sender = socket(AF_INET, SOCK_STREAM, 0);
  Require(connect(sender, generic, size) == 0, "connect");
  const int receiver = accept(listener, nullptr, nullptr);
  std::vector<char> from(bytes, 1);
  std::vector<char> into(bytes);
  constexpr size_t kChunk = 256 << 10;
  const double before = CpuSeconds();
  for (auto _ : state) {
    std::thread sending([&] {
      for (size_t at = 0; at < bytes;) {
        at += static_cast<size_t>(send(sender, &from[at], std::min(kChunk, bytes - at), 0));
      }
    });
    for (size_t at = 0; at < bytes;) {
      at += static_cast<size_t>(recv(receiver, &into[at], std::min(kChunk, bytes - at), 0));
    }
    sending.join();
  }
  Report(state, bytes, 1, CpuSeconds() - before);
  close(sender);
  close(receiver);
  close(listener);
}
BENCHMARK(BM_RawSockets)->Arg(256 << 20)->UseRealTime();

}  // namespace
}  // namespace phalanx::net

BENCHMARK_MAIN();
