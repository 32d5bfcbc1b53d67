// The time of the last trouble for each pair of node and shard: a fault of a process or link
// between them, or a change of their session. Checkers are strict with pairs without trouble.
//
// Owned by SimCluster. Thread rule: the test's thread. Testonly.
#ifndef PHALANX_SIM_CLUSTER_TROUBLE_LOG_H_
#define PHALANX_SIM_CLUSTER_TROUBLE_LOG_H_

#include <map>
#include <string>
#include <utility>

#include "src/common/time/instant.h"
#include "src/sim/seams/sim_executor.h"

namespace phalanx::sim {

class TroubleLog {
 public:
  // `scheduler` must outlive this.
  TroubleLog(const SimScheduler& scheduler, int nodes, int shards)
      : scheduler_(scheduler), nodes_(nodes), shards_(shards) {}

  // Each records trouble that happens now.
  void Add(int n, int s) { last_[{n, s}] = scheduler_.now(); }
  void AddForNode(int n);
  void AddForShard(int s);
  // Of two processes, by name. Only a pair of a node and a shard counts.
  void AddBetween(const std::string& a, const std::string& b);

  // Returns whether there was trouble between node and shard at that time or later.
  bool Since(int n, int s, Instant since) const;

 private:
  const SimScheduler& scheduler_;
  const int nodes_;
  const int shards_;
  std::map<std::pair<int, int>, Instant> last_;  // by node and shard
};

}  // namespace phalanx::sim

#endif  // PHALANX_SIM_CLUSTER_TROUBLE_LOG_H_
