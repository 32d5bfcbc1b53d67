// Random faults: processes that crash, leave, stall and return; links that are reset, slow,
// partitioned in one direction or both, or silently stop; nodes that run out of memory. The seed
// draws the kinds of faults of a run, their rates and lengths (a swarm): a run with few kinds tests
// them more deeply than a run with a little of every kind. Testonly.
#ifndef PHALANX_SIM_WORKLOADS_FAULTS_H_
#define PHALANX_SIM_WORKLOADS_FAULTS_H_

#include <array>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "src/common/ids/ids.h"
#include "src/common/random.h"
#include "src/sim/cluster/sim_cluster.h"

namespace phalanx::sim {

enum class Fault {
  kCrashNode,
  kLeaveNode,
  kStallNode,
  kCrashShard,
  kStallShard,
  kPartitionNodes,        // both directions
  kPartitionNodesOneWay,  // one direction
  kPartitionShard,
  kResetNodes,
  kResetShard,
  kHalfOpenNodes,
  kHalfOpenShard,
  kSlowLink,
  kShortIo,
  kMemory,
  kDrain,
  kCorruption,  // only with checksums
  kSeverNodes,  // a broken connection whose sent bytes arrive late
  kSeverShard,
};
inline constexpr size_t kFaults = 19;

struct FaultOptions {
  // The mean time between two faults; infinite: no faults.
  absl::Duration mean_pause = absl::Milliseconds(300);
  // The mean time until a fault is repaired.
  absl::Duration mean_length = absl::Milliseconds(500);
  std::array<double, kFaults> weights = {};
  // True: allocations fail. False: they wait, for long.
  bool memory_fails = true;
  // The minimum number of nodes that stay up and running.
  int nodes_left = 1;
};

class Faults {
 public:
  // `cluster` must outlive this. The tasks that this starts must end first.
  Faults(SimCluster& cluster, const FaultOptions& options, Random random)
      : cluster_(cluster), options_(options), random_(std::move(random)) {}

  // Injects faults until Stop.
  void Start();
  // Stops injecting faults and repairs all. A node that is leaving finishes first, and restarts
  // then.
  void Stop();
  // Returns whether a node that began to leave is still running, or has not restarted.
  bool NodeIsLeaving() const;

 private:
  void ScheduleNext();
  void Inject(Fault fault);
  Fault Choose();
  // Calls `repair` after a while, unless Stop repairs everything first.
  void RepairLater(std::function<void()> repair);
  int AnyNode();
  int AnyShard();
  // Returns a node that can be stopped; -1 if too few would be left.
  int AnyVictim();
  int Running();
  std::string AnyNodeName() { return NodeName(AnyNode()); }
  std::string AnyShardName() { return ShardName(AnyShard()); }
  void EndNode(bool crash);
  void StallNode();
  void CrashShard();
  void StallShard();
  void PartitionBetween(const std::string& a, const std::string& b, bool both_ways);
  void Sever(const std::string& from, const std::string& to);
  void SlowLink();
  void ShortIo();
  void StarveMemory();
  void Corrupt();
  void Drain();

  SimCluster& cluster_;
  const FaultOptions options_;
  Random random_;
  bool running_ = false;
  std::vector<NodeKey> leaving_;  // lives that began to leave
  int away_ = 0;                  // nodes that have left after a drain and will restart
};

}  // namespace phalanx::sim

#endif  // PHALANX_SIM_WORKLOADS_FAULTS_H_
