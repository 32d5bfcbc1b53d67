// Micro benchmark of groups over this machine's loopback: a group of nodes, each with its own
// threads, makes one call after the other, each member as soon as its last one has ended.
//
//   groups_benchmark --benchmark_repetitions=10 --benchmark_report_aggregates_only
//
// call_us is the mean time of a call, and cpu_us the CPU time (of all threads) of a call.

#include <benchmark/benchmark.h>
#include <sys/resource.h>

#include <atomic>
#include <functional>
#include <future>
#include <memory>
#include <string>
#include <vector>

#include "src/jobs/group/testing/group_nodes.h"
#include "src/net/testing/tcp_links.h"

namespace phalanx::jobs {
namespace {

using net::testing::TcpLinkNode;
using testing::GroupNode;

class NoMessages final : public net::LinkReceiver {
 public:
  absl::StatusOr<absl::Span<char>> PlaceFor(const NodeKey&, absl::string_view, size_t) override {
    return absl::Span<char>();
  }
  void OnMessage(const NodeKey&, absl::string_view, absl::Span<char>) override {}
  void OnLost(const NodeKey&, const absl::Status&) override {}
};

double CpuSeconds() {
  rusage usage = {};
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_usec) * 1e-6;
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

// A group of nodes, a member on each.
class Nodes {
 public:
  explicit Nodes(int count) {
    for (int i = 0; i < count; ++i) {
      links_.push_back(std::make_unique<TcpLinkNode>(static_cast<uint64_t>(i + 1), nothing_));
      peers_.push_back(links_.back()->peer());
    }
    nodes_.resize(links_.size());
    for (size_t i = 0; i < links_.size(); ++i) {
      links_[i]->OnControl([&, i] {
        nodes_[i] =
            std::make_unique<GroupNode>(peers_[i].key, links_[i]->control(), links_[i]->links());
        nodes_[i]->keep_results = false;
        nodes_[i]->service().OnView(testing::ViewOf(peers_));
      });
    }
  }
  ~Nodes() {
    for (size_t i = 0; i < links_.size(); ++i) {
      links_[i]->OnControl([&, i] { nodes_[i].reset(); });
    }
  }
  // Every member makes so many calls.
  void Run(const CallSpec& spec, int calls) {
    std::atomic<size_t> left = nodes_.size();
    std::promise<void> done;
    for (size_t i = 0; i < nodes_.size(); ++i) {
      auto input = std::make_shared<std::string>(
          InputBytes(spec, static_cast<int>(nodes_.size()), static_cast<int>(i)), '\1');
      links_[i]->OnControl([&, i, input] {
        Next(i, spec, input, calls, [&] {
          if (--left == 0) done.set_value();
        });
      });
    }
    done.get_future().wait();
  }

 private:
  void Next(size_t i, const CallSpec& spec, std::shared_ptr<std::string> input, int calls,
            std::function<void()> then) {
    if (calls == 0) return then();
    nodes_[i]->CallFrom(
        static_cast<int>(i), spec, *input, input, [this, i, spec, input, calls, then] {
          links_[i]->control().Post(
              [this, i, spec, input, calls, then] { Next(i, spec, input, calls - 1, then); });
        });
  }

  NoMessages nothing_;
  std::vector<std::unique_ptr<TcpLinkNode>> links_;
  std::vector<net::LinkPeer> peers_;
  std::vector<std::unique_ptr<GroupNode>> nodes_;
};

void BM_Group(benchmark::State& state, CallKind kind) {
  Nodes nodes(static_cast<int>(state.range(0)));
  CallSpec spec{.kind = kind, .bytes = static_cast<uint64_t>(state.range(1))};
  const int calls = spec.bytes > 65536 ? 20 : 500;
  nodes.Run(spec, 10);
  const double cpu = CpuSeconds();
  for (auto _ : state) nodes.Run(spec, calls);
  const auto total = static_cast<double>(state.iterations()) * calls;
  state.counters["call_us"] =
      benchmark::Counter(total / 1e6, benchmark::Counter::kIsRate | benchmark::Counter::kInvert);
  state.counters["cpu_us"] = (CpuSeconds() - cpu) / total * 1e6;
}

BENCHMARK_CAPTURE(BM_Group, AllReduce, CallKind::kAllReduce)
    ->ArgNames({"nodes", "bytes"})
    ->ArgsProduct({{8}, {8, 1024, 8192, 65536, 262144, 1 << 20, 32 << 20}})
    ->UseRealTime();
BENCHMARK_CAPTURE(BM_Group, Barrier, CallKind::kBarrier)
    ->ArgNames({"nodes", "bytes"})
    ->Args({8, 0})
    ->UseRealTime();
BENCHMARK_CAPTURE(BM_Group, Broadcast, CallKind::kBroadcast)
    ->ArgNames({"nodes", "bytes"})
    ->ArgsProduct({{8}, {1024, 1 << 20}})
    ->UseRealTime();

}  // namespace
}  // namespace phalanx::jobs

BENCHMARK_MAIN();
