// A whole cluster on one thread: shards of the directory and nodes as production has them (Shard,
// Node), on simulated processes, network, memory and time; and everything that can happen to them.
//
//   SimScheduler ◄── SimFabric
//     ├─ process "s0": Shard over streams from a SimNetwork              × shards
//     └─ process "n0": Node (store, data plane, sessions), SimClients    × nodes
//
// Faults are what the world does to the processes: they cannot tell it otherwise than real ones
// could. The cluster also keeps book of which pairs of node and shard have been in trouble since
// when, so that checkers can be strict with those that have not.
//
// Thread rule: the test's thread, between the scheduler's steps. Testonly.
#ifndef PHALANX_SIM_SIM_CLUSTER_H_
#define PHALANX_SIM_SIM_CLUSTER_H_

#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "phalanx/v1/tools.pb.h"
#include "src/common/testing/message_listener.h"
#include "src/directory/shard.h"
#include "src/runtime/node.h"
#include "src/sim/history.h"
#include "src/sim/journal.h"
#include "src/sim/sim_client.h"
#include "src/sim/sim_executor.h"
#include "src/sim/sim_memory.h"
#include "src/sim/sim_network.h"

namespace phalanx::sim {

struct ClusterOptions {
  uint64_t seed = 1;
  int nodes = 4;
  int shards = 1;
  uint64_t capacity_bytes = 4 << 20;
  // Of a node's state that it tells a new session in one turn.
  size_t registered_per_turn = 4096;
  absl::Duration transit_patience = absl::Seconds(60);
  // I/O loops of a node; 0: its control loop does that too.
  int io_loops = 1;
  absl::Duration lease = absl::Seconds(2);
  directory::DirectoryOptions
      directory;  // the lease is filled in; `first_life` of the first one only
  net::DataPlaneOptions data_plane;
  SimScheduler::Options scheduler;  // the seed is filled in
  SimFabric::Options fabric;        // the seed is filled in
  // Of each node's memory.
  absl::Duration allocation_delay;
  double allocation_failures = 0;
  // Node i is in zone i % zones; 0: no labels.
  int zones = 0;
  std::string secret;
  // The test promises to break nothing: checkers may be stricter.
  bool peaceful = false;
  bool verbose = false;
  // Sees what nodes send to shards ("n0-s1 ->"), and what reaches them from there ("n0-s1 <-").
  phalanx::testing::MessageListener listener = {};
};

class SimCluster : private Oracle {
 public:
  explicit SimCluster(const ClusterOptions& options);
  // Everybody is killed.
  ~SimCluster() override;

  const ClusterOptions& options() const { return options_; }
  SimScheduler& scheduler() { return scheduler_; }
  SimFabric& fabric() { return fabric_; }
  Journal& journal() { return journal_; }
  History& history() { return history_; }

  int num_nodes() const { return static_cast<int>(nodes_.size()); }
  int num_shards() const { return static_cast<int>(shards_.size()); }
  int ShardOf(const ObjectId& id) const;

  // ---- looking; null while it is down
  runtime::Node* node(int n) { return nodes_[static_cast<size_t>(n)].node.get(); }
  object_store::Store* store(int n);
  // The clock of a node that is up: another one than the world's.
  Instant NowAt(int n) const { return nodes_[static_cast<size_t>(n)].control->Now(); }
  SimMemory& memory(int n) { return *nodes_[static_cast<size_t>(n)].memory; }
  directory::Shard* shard(int s) { return shards_[static_cast<size_t>(s)].shard.get(); }
  bool node_stalled(int n) const;
  bool shard_stalled(int s) const;
  // What a shard knows; nothing while it is down.
  std::vector<v1::ObjectSummary> List(int s);
  v1::DescribeObjectResponse Describe(const ObjectId& id);
  // Of a node's capacity.
  static uint64_t CountedBytes(const v1::ObjectSummary& object);
  // The same in words, and what each node has of it.
  std::string DescribeEverywhere(const ObjectId& id);
  // By name of the process's life; -1 if it is none that runs.
  int FindNode(const NodeKey& key) const;
  static std::string NodeName(int n) { return absl::StrCat("n", n); }
  static std::string ShardName(int s) { return absl::StrCat("s", s); }

  // ---- clients; they end with their node
  SimClient* OpenClient(int n);
  // Those that are not closed.
  std::vector<SimClient*> clients(int n);
  // Runs on the node's control loop, soon; not at all if the node dies first.
  void OnNode(int n, std::function<void()> task);
  // Whatever a node has from a shard, before the node sees it.
  using Watcher = std::function<void(int n, const v1::ShardMessage&)>;
  void OnShardMessage(Watcher watcher) { watcher_ = std::move(watcher); }

  // ---- machines. Starting what is up and stopping what is down does nothing.
  void StartNode(int n);
  void CrashNode(int n);
  // As after SIGTERM without a drain: says goodbye and is gone.
  void LeaveNode(int n);
  // On the node's control loop. A drain that says OK while an adopted object has its only complete
  // copy here is a violation.
  void Drain(int n, absl::Duration timeout, std::function<void(const absl::Status&)> done);
  void StallNode(int n);
  void ResumeNode(int n);
  void StartShard(int s);
  void CrashShard(int s);
  void StallShard(int s);
  void ResumeShard(int s);

  // ---- network, by names of processes
  void Partition(const std::string& from, const std::string& to);
  void Heal(const std::string& from, const std::string& to);
  void Reset(const std::string& a, const std::string& b);
  void HalfOpen(const std::string& from, const std::string& to);
  void Sever(const std::string& from, const std::string& to, absl::Duration late);
  void SetLink(const std::string& from, const std::string& to, const Link& link);
  // How often a bit flips in what nodes write to each other: in payload, which checksums cover.
  void CorruptNodes(double chance);

  // Everybody up and running, the network as it was made.
  void HealEverything();

  // ---- trouble
  // Nothing stands between node and shard, and nothing has since then.
  bool Undisturbed(int n, int s, Instant since) const;
  // When the node's last life ended.
  Instant last_crash(int n) const { return nodes_[static_cast<size_t>(n)].last_crash; }
  Instant last_shard_start(int s) const { return shards_[static_cast<size_t>(s)].started; }
  // Every life of every node that has been.
  int lives() const { return lives_; }

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
    // To be started as soon as it has left.
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
  void Trouble(int n, int s);
  void TroubleForNode(int n);
  void TroubleForShard(int s);
  // Between the two processes, whatever they are.
  void TroubleBetween(const std::string& a, const std::string& b);
  std::optional<Generation> AdoptedNow(const ObjectId& id, const NodeKey& node,
                                       Instant since) override;
  Instant ShardStarted(const ObjectId& id) override;

  const ClusterOptions options_;
  SimScheduler scheduler_;
  SimFabric fabric_;
  Journal journal_;
  History history_;
  Random random_;
  int lives_ = 0;
  std::vector<NodeSlot> nodes_;
  std::vector<ShardSlot> shards_;
  std::set<std::pair<std::string, std::string>> partitions_;
  std::map<std::pair<std::string, std::string>, Link> links_;
  std::map<std::pair<int, int>, Instant> last_trouble_;  // node, shard
  // By node and shard: the requests of their session that were answered, by which message.
  std::map<std::pair<int, int>, std::map<uint64_t, uint64_t>> answered_;
  Watcher watcher_;
};

}  // namespace phalanx::sim

#endif  // PHALANX_SIM_SIM_CLUSTER_H_
