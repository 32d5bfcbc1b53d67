// What must hold in a simulated cluster whatever happens to it, and what must hold once it has come
// to rest. Breaches go to the journal. Testonly.
//
// Always (Sample, between any two events)
//  1. Every core's own invariants.
//  2. Below the watermarks every copy on every node has the bytes of its generation's attempt; so
//     has all that clients look at.
//  3. The adopted generation changes only when the one before was deleted, or nobody whom the shard
//     could know of had it: not while a node in undisturbed contact with the shard has it complete,
//     or writes it.
//  4. The last complete copy of an adopted generation does not go while its node lives, unless it
//     was deleted, replaced by another (3), or granted for eviction on the word of a node that
//     died.
// At rest (Settled, to be asked until it is OK)
//  5. Every node is in touch with every shard; nothing is being fetched, sent or decided.
//  6. The directory lists exactly the copies that there are.
//  7. What was deleted is nowhere, as long as somebody can know: the shard's life in which that
//     was, or a node that was told. What was superseded is nowhere.
//  8. No request waits but Gets for objects of which there is no copy.
// When everything was deleted and let go (Empty)
//  9. No memory, pins, references, requests, pulls, pushes; no state in the shards.
#ifndef PHALANX_SIM_CHECKERS_H_
#define PHALANX_SIM_CHECKERS_H_

#include <cstdint>
#include <map>
#include <set>
#include <tuple>
#include <vector>

#include "absl/status/status.h"
#include "src/sim/sim_cluster.h"

namespace phalanx::sim {

class Checkers {
 public:
  // `cluster` outlives this.
  explicit Checkers(SimCluster& cluster) : cluster_(cluster) {}

  void Sample();
  // OK, or what is not yet so.
  absl::Status Settled();
  absl::Status Empty();

  // Bytes of copies that were compared so far.
  uint64_t bytes_checked() const { return bytes_checked_; }

 private:
  using Copies = std::vector<object_store::Store::CopyInfo>;
  struct Verified {
    const void* buffer = nullptr;
    std::vector<uint64_t> watermarks;
  };
  struct Holding {
    std::set<NodeKey> holders;  // at the last sample
    // When a holder died last.
    Instant last_death = Instant::FromNanos(-1);
  };

  void CheckCores();
  void CheckBytes(int n, const Copies& copies);
  void CheckCopyBytes(int n, const object_store::Store::CopyInfo& copy, uint64_t attempt);
  void CheckAdoption();
  // `returned`: had been the object's generation before.
  void CheckReplacement(const ObjectId& id, const Generation& before, const Generation& now,
                        bool returned);
  bool MustBeDeleted(const Attempt& attempt);
  void CheckLosses(const std::map<Generation, std::set<NodeKey>>& complete);
  absl::Status NodesAtRest();
  absl::Status RequestsAtRest();
  bool MayWait(const Operation& get);
  uint64_t KeptBytes(int n);
  absl::Status DirectoryIsTrue();
  absl::Status ObjectIsTrue(const ObjectId& id);
  absl::Status NodeIsEmpty(int n);
  // So long after a node died its shards may believe that it lives.
  absl::Duration Fencing() const { return cluster_.options().lease * 2 + absl::Milliseconds(200); }
  // So long after trouble nobody can say that a shard might not know.
  absl::Duration Grace() const { return cluster_.options().lease * 3 + absl::Seconds(1); }

  SimCluster& cluster_;
  uint64_t bytes_checked_ = 0;
  std::map<std::tuple<NodeKey, Generation>, Verified> verified_;
  std::map<ObjectId, Generation> adopted_;
  std::map<uint64_t, Holding> holdings_;  // by attempt
};

}  // namespace phalanx::sim

#endif  // PHALANX_SIM_CHECKERS_H_
