// PsFixture: servers and workers of a parameter server as threads with clients of real nodes. One
// that is dropped without its end has died. Testonly.
#ifndef PHALANX_NODE_TESTING_PS_FIXTURE_H_
#define PHALANX_NODE_TESTING_PS_FIXTURE_H_

#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "phalanx/client.h"
#include "phalanx/ps.h"
#include "src/common/testing/status_matchers.h"
#include "src/node/local_cluster.h"
#include "src/ps/rows/object_parts.h"
#include "src/ps/rows/ring_sums.h"
#include "src/ps/split.h"

namespace phalanx::runtime {

inline constexpr absl::Duration kDeadline = absl::Seconds(60);

class PsFixture : public ::testing::Test {
 protected:
  void Make(int nodes, int servers, int workers, int shards = 1) {
    LocalClusterOptions options;
    options.nodes = nodes;
    options.shards = shards;
    // Snapshots are kept on other hosts.
    options.configure_node = [](int node, NodeConfig& config) {
      config.node.labels["host"] = absl::StrCat("host", node);
    };
    absl::StatusOr<std::unique_ptr<LocalCluster>> cluster = LocalCluster::Start(std::move(options));
    ASSERT_THAT(cluster, testing::IsOk());
    cluster_ = *std::move(cluster);
    servers_ = servers;
    workers_ = workers;
  }
  // Two nodes and a server; one of the nodes has so much memory.
  void MakeWithASmallNode(int small, uint64_t capacity_bytes, int workers) {
    LocalClusterOptions options;
    options.nodes = 2;
    options.configure_node = [small, capacity_bytes](int node, NodeConfig& config) {
      if (node == small) config.node.capacity_bytes = capacity_bytes;
    };
    cluster_ = LocalCluster::Start(std::move(options)).value();
    servers_ = 1;
    workers_ = workers;
  }
  std::shared_ptr<Client> Connect(int node) const {
    ClientOptions options;
    options.address = cluster_->client_address(node);
    return Client::Connect(options).value();
  }
  absl::StatusOr<ps::Server> JoinServer(int rank, int node) const {
    ps::Options options;
    options.job = job_;
    options.task = absl::StrCat("server", rank);
    options.world = servers_;
    options.peer_timeout = peer_timeout_;
    if (!checkpoint_dirs_.empty()) options.checkpoint_dir = checkpoint_dirs_[rank];
    return ps::Server::Join(*Connect(node), options);
  }
  absl::StatusOr<ps::Worker> JoinWorker(int rank, int node) const {
    ps::Options options;
    options.job = job_;
    options.task = absl::StrCat("worker", rank);
    options.world = workers_;
    options.peer_timeout = peer_timeout_;
    return ps::Worker::Join(*Connect(node), options);
  }
  absl::StatusOr<ps::Server> JoinServer(int rank) const {
    return JoinServer(rank, rank % cluster_->nodes());
  }
  absl::StatusOr<ps::Worker> JoinWorker(int rank) const {
    return JoinWorker(rank, rank % cluster_->nodes());
  }
  // Runs servers with these tables, and `body` for each worker, in threads. Workers leave after it.
  void Run(const std::vector<ps::TableSpec>& tables,
           const std::function<void(ps::Worker&)>& body) const {
    RunServers(
        [&](ps::Server& server) {
          for (const ps::TableSpec& spec : tables) {
            ASSERT_THAT(server.AddTable(spec), testing::IsOk());
          }
        },
        body);
  }
  void RunServers(const std::function<void(ps::Server&)>& prepare,
                  const std::function<void(ps::Worker&)>& body) const {
    std::vector<std::thread> threads;
    for (int rank = 0; rank < servers_; ++rank) {
      threads.emplace_back([&, rank] {
        absl::StatusOr<ps::Server> server = JoinServer(rank);
        ASSERT_THAT(server, testing::IsOk());
        prepare(*server);
        EXPECT_THAT(server->Run(), testing::IsOk());
      });
    }
    for (int rank = 0; rank < workers_; ++rank) {
      threads.emplace_back([&, rank] {
        absl::StatusOr<ps::Worker> worker = JoinWorker(rank);
        ASSERT_THAT(worker, testing::IsOk());
        body(*worker);
        EXPECT_THAT(worker->Leave(), testing::IsOk());
      });
    }
    for (std::thread& thread : threads) thread.join();
  }

  // What worker `worker` pushes at a clock: sums of these depend on the order in which they are
  // made.
  static std::vector<float> PushOf(int worker, uint64_t clock, size_t size) {
    constexpr float kValues[] = {1e8f, 1.0f, -1e8f, 3.25f, -0.5f};
    std::vector<float> values(size);
    for (size_t i = 0; i < size; ++i) {
      values[i] = kValues[(i + static_cast<size_t>(worker) * 2 + clock * 3) % 5];
    }
    return values;
  }
  // What a table of sums has when so many clocks have ended, with kBsp.
  static std::vector<float> SerialSum(int workers, uint64_t clocks, size_t size) {
    std::vector<float> table(size, 0.0f);
    for (uint64_t clock = 0; clock < clocks; ++clock) {
      std::vector<float> sum = PushOf(0, clock, size);
      for (int worker = 1; worker < workers; ++worker) {
        const std::vector<float> more = PushOf(worker, clock, size);
        for (size_t i = 0; i < size; ++i) sum[i] += more[i];
      }
      for (size_t i = 0; i < size; ++i) table[i] += sum[i];
    }
    return table;
  }
  // The same for a table of any size, which has servers_ and workers_: that of a large one is a
  // ring sum (src/ps/rows/ring_sums.h).
  std::vector<float> Replayed(uint64_t clocks, size_t size) {
    const std::lock_guard<std::mutex> lock(replay_mutex_);
    std::vector<std::vector<float>>& states = replays_[size];
    if (states.empty()) states.emplace_back(size, 0.0f);
    while (states.size() <= clocks) states.push_back(NextState(states.back(), states.size() - 1));
    return states[clocks];
  }
  std::vector<float> NextState(const std::vector<float>& state, uint64_t clock) const {
    const ps::TableSpec spec{.name = "w", .keys = state.size()};
    const ps::internal::Splitter splitter(spec, servers_);
    std::vector<std::vector<float>> sources = {state};
    for (int worker = 0; worker < workers_; ++worker) {
      sources.push_back(PushOf(worker, clock, state.size()));
    }
    std::vector<float> next(state.size());
    for (int server = 0; server < servers_; ++server) {
      const uint64_t bytes = ps::internal::ObjectPartBytes(spec, splitter, server);
      const size_t first = splitter.KeyAt(server, 0);
      if (!ps::internal::SumsInRing(spec, bytes, workers_) ||
          !ps::internal::IsRingSum(bytes, sources.size())) {
        for (size_t i = first; i < first + bytes / sizeof(float); ++i) {
          float sum = sources[1][i];
          for (size_t source = 2; source < sources.size(); ++source) sum += sources[source][i];
          next[i] = state[i] + sum;
        }
        continue;
      }
      for (const auto& slice : ps::internal::RingSlices(bytes, sources.size())) {
        const size_t begin = first + slice.begin / sizeof(float);
        for (size_t i = begin; i < begin + slice.bytes / sizeof(float); ++i) {
          float sum = sources[slice.sources[0]][i];
          for (size_t at = 1; at < slice.sources.size(); ++at) sum += sources[slice.sources[at]][i];
          next[i] = sum;
        }
      }
    }
    return next;
  }
  static bool SameBits(const std::vector<float>& a, const std::vector<float>& b) {
    return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
  }

  std::string job_ = "train";
  absl::Duration peer_timeout_ = kDeadline;
  std::vector<std::string> checkpoint_dirs_;  // of the servers; empty: they have none
  int servers_ = 0;
  int workers_ = 0;
  std::unique_ptr<LocalCluster> cluster_;
  std::mutex replay_mutex_;
  std::map<size_t, std::vector<std::vector<float>>> replays_;  // by size, then by clock
};

}  // namespace phalanx::runtime

#endif  // PHALANX_NODE_TESTING_PS_FIXTURE_H_
