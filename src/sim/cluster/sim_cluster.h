// A whole cluster on one thread: shards of the directory and nodes of the production code (Shard,
// Node) on simulated processes, network, memory and time; and all faults that can hit them.
//
//   SimScheduler ◄── SimFabric
//     ├─ process "s0": Shard over streams from a SimNetwork              × shards
//     └─ process "n0": Node (store, data plane, sessions), SimClients    × nodes
//
// Faults happen to the processes from outside, so the code cannot distinguish them from real ones.
// A TroubleLog has the last trouble of each pair of node and shard, so that checkers can be strict
// with undisturbed pairs.
//
// Thread rule: the test's thread, between the scheduler's steps. Testonly.
#ifndef PHALANX_SIM_CLUSTER_SIM_CLUSTER_H_
#define PHALANX_SIM_CLUSTER_SIM_CLUSTER_H_

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "phalanx/v1/tools.pb.h"
#include "src/common/testing/message_listener.h"
#include "src/directory/session/shard.h"
#include "src/node/node.h"
#include "src/sim/cluster/history.h"
#include "src/sim/cluster/journal.h"
#include "src/sim/cluster/network_faults.h"
#include "src/sim/cluster/process_names.h"
#include "src/sim/cluster/sim_client.h"
#include "src/sim/cluster/trouble_log.h"
#include "src/sim/seams/sim_executor.h"
#include "src/sim/seams/sim_memory.h"
#include "src/sim/seams/sim_network.h"

namespace phalanx::sim {

struct ClusterOptions {
  uint64_t seed = 1;
  int nodes = 4;
  int shards = 1;
  uint64_t capacity_bytes = 4 << 20;
  // The number of copies that a node registers in a new session per turn.
  size_t registered_per_turn = 4096;
  absl::Duration transit_patience = absl::Seconds(60);
  // I/O loops of a node; 0: the control loop does the I/O too.
  int io_loops = 1;
  absl::Duration lease = absl::Seconds(2);
  directory::DirectoryOptions
      directory;  // the lease is filled in; `first_life` applies to a shard's first life only
  net::DataPlaneOptions data_plane;
  SimScheduler::Options scheduler;  // the seed is filled in
  SimFabric::Options fabric;        // the seed is filled in
  // The longest allocation of each node's memory.
  absl::Duration allocation_delay;
  double allocation_failures = 0;
  // Node i is in zone i % zones; 0: no labels.
  int zones = 0;
  // Node i is on host i % hosts; 0: each node is on a host of its own.
  int hosts = 0;
  std::string secret;
  // The test injects no faults, so checkers can be stricter.
  bool peaceful = false;
  bool verbose = false;
  // Sees what nodes send to shards ("n0-s1 ->"), and what reaches them from there ("n0-s1 <-").
  phalanx::testing::MessageListener listener = {};
};

class SimCluster : private Oracle {
 public:
  explicit SimCluster(const ClusterOptions& options);
  // Kills all processes.
  ~SimCluster() override;

  const ClusterOptions& options() const { return options_; }
  SimScheduler& scheduler() { return scheduler_; }
  SimFabric& fabric() { return fabric_; }
  NetworkFaults& network() { return network_; }
  Journal& journal() { return journal_; }
  History& history() { return history_; }

  int num_nodes() const { return static_cast<int>(nodes_.size()); }
  int num_shards() const { return static_cast<int>(shards_.size()); }
  int ShardOf(const ObjectId& id) const;

  // ---- inspection; null while the process is down
  runtime::Node* node(int n) { return nodes_[static_cast<size_t>(n)].node.get(); }
  object_store::Store* store(int n);
  // The clock of a running node. It differs from the world's clock.
  Instant NowAt(int n) const { return nodes_[static_cast<size_t>(n)].control->Now(); }
  SimMemory& memory(int n) { return *nodes_[static_cast<size_t>(n)].memory; }
  directory::Shard* shard(int s) { return shards_[static_cast<size_t>(s)].shard.get(); }
  bool node_stalled(int n) const;
  bool shard_stalled(int s) const;
  // Returns the shard's objects; empty while the shard is down.
  std::vector<v1::ObjectSummary> List(int s);
  v1::DescribeObjectResponse Describe(const ObjectId& id);
  // Returns the bytes that count against a node's capacity.
  static uint64_t CountedBytes(const v1::ObjectSummary& object);
  // Returns the state of an object in words, with the copy of each node.
  std::string DescribeEverywhere(const ObjectId& id);
  // Returns the node whose current life has this key; -1 if no running node has.
  int FindNode(const NodeKey& key) const;

  // ---- clients; a client ends with its node
  SimClient* OpenClient(int n);
  // Returns the clients that are not closed.
  std::vector<SimClient*> clients(int n);
  // Runs `task` on the node's control loop soon. Drops it if the node dies first.
  void OnNode(int n, std::function<void()> task);
  // Called with every message of a shard before the node receives it.
  using Watcher = std::function<void(int n, const v1::ShardMessage&)>;
  void OnShardMessage(Watcher watcher) { watcher_ = std::move(watcher); }

  // ---- machines. Starting a running process and stopping a stopped one does nothing.
  void StartNode(int n);
  void CrashNode(int n);
  // Stops like SIGTERM without a drain: the node ends its sessions and exits.
  void LeaveNode(int n);
  // Drains on the node's control loop. It is a violation if a drain returns OK while this node has
  // the only complete copy of an adopted object.
  void Drain(int n, absl::Duration timeout, std::function<void(const absl::Status&)> done);
  void StallNode(int n);
  void ResumeNode(int n);
  void StartShard(int s);
  void CrashShard(int s);
  void StallShard(int s);
  void ResumeShard(int s);

  // Starts and resumes all processes, and restores the original network.
  void HealEverything();

  // ---- trouble
  // Returns whether there was no trouble between node and shard since then, and there is none now.
  bool Undisturbed(int n, int s, Instant since) const;
  // The end of the node's previous life.
  Instant last_crash(int n) const { return nodes_[static_cast<size_t>(n)].last_crash; }
  Instant last_shard_start(int s) const { return shards_[static_cast<size_t>(s)].started; }
  // The number of lives of all nodes so far.
  int lives() const { return lives_; }
  // The sum of this counter over the shards that run.
  uint64_t Counter(const std::string& name);

 private:
  struct NodeSlot {
    std::unique_ptr<SimProcess> process;
    std::unique_ptr<SimNetwork> network;
    SimExecutor* control = nullptr;
    std::unique_ptr<SimMemory> memory;
    std::unique_ptr<runtime::Node> node;
    std::vector<std::unique_ptr<SimClient>> clients;
    uint64_t incarnation = 0;
    bool leaving = false;
    // Start the node again as soon as it has left.
    bool wanted_back = false;
    Instant last_crash;
  };
  struct ShardSlot {
    std::unique_ptr<SimProcess> process;
    std::unique_ptr<SimNetwork> network;
    SimExecutor* control = nullptr;
    std::unique_ptr<net::Listener> listener;
    std::unique_ptr<directory::Shard> shard;
    Instant started;
    bool had_a_life = false;
  };

  runtime::NodeOptions OptionsOfNode(int n) const;
  std::function<void(void*, size_t)> NonceBytes();
  void MakeNode(int n);
  void MakeShard(int s);
  void EndNode(NodeSlot& slot);
  void OnSent(int n, int s, const v1::NodeMessage& message);
  void OnReceived(int n, int s, uint64_t sequence, const v1::ShardMessage& message);
  void CheckDrained(int n);
  std::optional<Generation> AdoptedNow(const ObjectId& id, const NodeKey& node,
                                       Instant since) override;
  Instant ShardStarted(const ObjectId& id) override;

  const ClusterOptions options_;
  SimScheduler scheduler_;
  SimFabric fabric_;
  Journal journal_;
  History history_;
  TroubleLog trouble_;
  NetworkFaults network_;
  Random random_;
  int lives_ = 0;
  std::vector<NodeSlot> nodes_;
  std::vector<ShardSlot> shards_;
  // By node and shard: each answered request of their session, with the number of the answering
  // message.
  std::map<std::pair<int, int>, std::map<uint64_t, uint64_t>> answered_;
  Watcher watcher_;
};

}  // namespace phalanx::sim

#endif  // PHALANX_SIM_CLUSTER_SIM_CLUSTER_H_
