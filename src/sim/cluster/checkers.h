// The invariants of a simulated cluster: always, and at rest. Violations go to the journal.
// Testonly.
//
// Always, between any two events (CheckCores)
//  1. Every core's own invariants.
// Always, if the cluster's clients are SimClients (CheckCopies)
//  2. Below the watermarks every copy on every node has the bytes of its generation's attempt. So
//     has every view of a client.
//  3. The adopted generation changes only if the previous one was deleted, or if no node known to
//     the shard has it: not while a node in undisturbed contact with the shard has it complete, or
//     writes it.
//  4. The last complete copy of an adopted generation stays while its node lives, unless it was
//     deleted, replaced (3), or granted for eviction because of a copy on a node that died.
//  5. A copy has the name of its object.
// At rest (Settled, polled until it is OK)
//  6. Every node is in contact with every shard; no fetch, send or decision is pending.
//  7. The directory lists exactly the existing copies, and knows the names of the objects.
//  8. A deleted object is nowhere, as long as the shard's life or a node remembers the deletion. A
//     superseded generation is nowhere.
//  9. No request waits except Gets of objects without a copy.
// When everything was deleted and released (Empty)
// 10. No memory, pins, references, requests, pulls or pushes; no state in the shards.
#ifndef PHALANX_SIM_CLUSTER_CHECKERS_H_
#define PHALANX_SIM_CLUSTER_CHECKERS_H_

#include <cstdint>
#include <map>
#include <set>
#include <tuple>
#include <vector>

#include "absl/status/status.h"
#include "src/sim/cluster/sim_cluster.h"

namespace phalanx::sim {

class Checkers {
 public:
  // `cluster` must outlive this.
  explicit Checkers(SimCluster& cluster) : cluster_(cluster) {}

  void CheckCores();
  void CheckCopies();
  // Returns OK at rest, else the first condition that does not hold yet.
  absl::Status Settled();
  absl::Status Empty();

  // The number of bytes of copies compared so far.
  uint64_t bytes_checked() const { return bytes_checked_; }

 private:
  using Copies = std::vector<object_store::Store::CopyInfo>;
  struct Verified {
    const void* buffer = nullptr;
    std::vector<uint64_t> watermarks;
  };
  struct Holding {
    std::set<NodeKey> holders;  // at the previous sample
    // The time of the last death of a holder.
    Instant last_death = Instant::FromNanos(-1);
  };

  void CheckBytes(int n, const Copies& copies);
  void CheckCopyBytes(int n, const object_store::Store::CopyInfo& copy, uint64_t attempt);
  void CheckAdoption();
  // `returned`: the generation `now` had been adopted before.
  void CheckReplacement(const ObjectId& id, const Generation& before, const Generation& now,
                        bool returned);
  bool MustBeDeleted(const Attempt& attempt);
  void CheckLosses(const std::map<Generation, std::set<NodeKey>>& complete);
  absl::Status NodesAtRest();
  absl::Status RequestsAtRest();
  bool CanWait(const Operation& get);
  uint64_t UnevictableBytes(int n);
  absl::Status DirectoryMatchesCopies();
  absl::Status ObjectMatchesCopies(const ObjectId& id);
  absl::Status NodeIsEmpty(int n);
  // The longest time for which shards can believe that a dead node lives.
  absl::Duration Fencing() const { return cluster_.options().lease * 2 + absl::Milliseconds(200); }
  // After trouble, the time in which a shard can miss the state of a node.
  absl::Duration Grace() const { return cluster_.options().lease * 3 + absl::Seconds(1); }

  SimCluster& cluster_;
  uint64_t bytes_checked_ = 0;
  std::map<std::tuple<NodeKey, Generation>, Verified> verified_;
  std::map<ObjectId, Generation> adopted_;
  std::map<uint64_t, Holding> holdings_;  // by attempt
};

}  // namespace phalanx::sim

#endif  // PHALANX_SIM_CLUSTER_CHECKERS_H_
