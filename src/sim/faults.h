// Random faults: processes that crash, leave, stall and come back; links that are cut, slow,
// partitioned one way or both, or die without a word; nodes that run out of memory. Which kinds
// happen at all in a run, how often and for how long is drawn from the seed (a swarm): a run with
// few kinds goes deeper than one that has a bit of everything. Testonly.
#ifndef PHALANX_SIM_FAULTS_H_
#define PHALANX_SIM_FAULTS_H_

#include <array>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "src/common/ids.h"
#include "src/common/random.h"
#include "src/sim/sim_cluster.h"

namespace phalanx::sim {

enum class Fault {
  kCrashNode,
  kLeaveNode,
  kStallNode,
  kCrashShard,
  kStallShard,
  kPartitionNodes,        // both ways
  kPartitionNodesOneWay,  // one of them
  kPartitionShard,
  kResetNodes,
  kResetShard,
  kHalfOpenNodes,
  kHalfOpenShard,
  kSlowLink,
  kShortIo,
  kMemory,
  kDrain,
  kCorruption,  // only where checksums are on
  kSeverNodes,  // a broken connection; what was sent on it comes late
  kSeverShard,
};
inline constexpr size_t kFaults = 19;

struct FaultOptions {
  // Between two faults; infinite for none.
  absl::Duration mean_pause = absl::Milliseconds(300);
  // Until one that can be mended is.
  absl::Duration mean_length = absl::Milliseconds(500);
  std::array<double, kFaults> weights = {};
  // What has no memory fails; or it waits, for long.
  bool memory_fails = true;
  // So many nodes at least are up and running.
  int nodes_left = 1;
};

class Faults {
 public:
  // `cluster` outlives this, and all that was started by it ends before.
  Faults(SimCluster& cluster, const FaultOptions& options, Random random)
      : cluster_(cluster), options_(options), random_(std::move(random)) {}

  // Things break until Stop.
  void Start();
  // No more breaks, and all is mended. Who was told to leave does so in its own time, and comes
  // back.
  void Stop();
  // A node that was told to leave is still there.
  bool SomebodyLeaves() const;

 private:
  void Later();
  void Break();
  void Do(Fault fault);
  Fault Choose();
  // After a while, unless all was mended before.
  void Mend(std::function<void()> mend);
  int AnyNode();
  int AnyShard();
  // A node that may be taken away; -1 if too few would be left.
  int AnyVictim();
  int Running();
  std::string AnyNodeName() { return SimCluster::NodeName(AnyNode()); }
  std::string AnyShardName() { return SimCluster::ShardName(AnyShard()); }
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
  std::vector<NodeKey> leaving_;  // lives that were told to
};

}  // namespace phalanx::sim

#endif  // PHALANX_SIM_FAULTS_H_
