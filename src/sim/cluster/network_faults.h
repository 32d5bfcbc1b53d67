// The faults of a simulated cluster's network: partitions, broken and silent connections, other
// links, flipped bits. Each call writes to the journal and to the log of trouble.
//
//   Faults, scenarios ──► NetworkFaults ──► SimFabric
//                                      └──► Journal, TroubleLog
//
// It owns what has to be repaired: the partitions in force, and the original links. Processes are
// given by their names. Owned by SimCluster. Thread rule: the test's thread. Testonly.
#ifndef PHALANX_SIM_CLUSTER_NETWORK_FAULTS_H_
#define PHALANX_SIM_CLUSTER_NETWORK_FAULTS_H_

#include <map>
#include <set>
#include <string>
#include <utility>

#include "absl/time/time.h"
#include "src/sim/cluster/journal.h"
#include "src/sim/cluster/trouble_log.h"
#include "src/sim/seams/sim_network.h"

namespace phalanx::sim {

class NetworkFaults {
 public:
  // The references must outlive this.
  NetworkFaults(SimFabric& fabric, int nodes, Journal& journal, TroubleLog& trouble)
      : fabric_(fabric), nodes_(nodes), journal_(journal), trouble_(trouble) {}

  // Holds back all bytes in this direction until Heal.
  void Partition(const std::string& from, const std::string& to);
  // Breaks the open connections of the two, and refuses those that `from` begins until Heal.
  void Refuse(const std::string& from, const std::string& to);
  // Does nothing without a partition or a refusal in this direction.
  void Heal(const std::string& from, const std::string& to);
  bool Partitioned(const std::string& from, const std::string& to) const {
    return partitions_.contains({from, to});
  }
  // Each breaks the open connections of two processes, as SimFabric defines it.
  void Reset(const std::string& a, const std::string& b);
  void HalfOpen(const std::string& from, const std::string& to);
  void Sever(const std::string& from, const std::string& to, absl::Duration late);
  void SetLink(const std::string& from, const std::string& to, const Link& link);
  // Sets the chance of a bit flip in a write between nodes. Only payload is hit, which checksums
  // cover.
  void CorruptNodes(double chance);

  // Restores the original links, ends all partitions and bit flips.
  void HealEverything();

 private:
  using Direction = std::pair<std::string, std::string>;  // from, to

  SimFabric& fabric_;
  const int nodes_;
  Journal& journal_;
  TroubleLog& trouble_;
  std::set<Direction> partitions_;
  std::map<Direction, Link> original_links_;  // of the links that SetLink has changed
};

}  // namespace phalanx::sim

#endif  // PHALANX_SIM_CLUSTER_NETWORK_FAULTS_H_
