// The leases under which this node serves its copies of objects with names: one from each shard of
// the directory. Without the lease of its shard an object can have been deleted, and other bytes
// put under its name, without this node's knowledge.
//
//            first session                  new session
//   kFree ──────────────────► kRegistered ──────────────► kRegistering
//                                  ▲                           │
//                                  └──────── Registered ───────┘
//
// Each answer of the shard extends the lease of a node in kRegistered, and of no other.
//
//  - Before its first session with a shard the node has nothing that the shard could have deleted.
//  - The lease ends kLeaseShare of the shard's lease after this node sent the latest frame that the
//    shard is known to have received. The shard counts a whole lease from the receipt, so the node
//    stops before the shard acknowledges a Delete without it, as long as the clocks of the two
//    hosts differ in rate by less than 1 - kLeaseShare.
//  - A lease that has not ended outlives its session: whoever deleted an object meanwhile waits for
//    its end, or for this node's registration.
//
// A node answers calls of groups under the same leases. Without the lease of a job's shard, or in a
// session whose registration is not over, its members of the job can have been declared dead, and
// the others can have made the call again without them.
//
// Thread rule: no thread, lock, clock or I/O inside; the control loop only. Owned by the store, and
// by the service of groups.
#ifndef PHALANX_OBJECT_STORE_CHANNEL_SHARD_LEASES_H_
#define PHALANX_OBJECT_STORE_CHANNEL_SHARD_LEASES_H_

#include <vector>

#include "absl/time/time.h"
#include "phalanx/object_id.h"
#include "src/common/ids/shard_of.h"
#include "src/common/time/instant.h"

namespace phalanx::object_store {

// The share of a shard's lease for which its node serves names.
inline constexpr double kLeaseShare = 31.0 / 32;

class ShardLeases {
 public:
  explicit ShardLeases(int num_shards) : leases_(static_cast<size_t>(num_shards)) {}

  // Returns true if a copy of the object can be served at `now`, which was read after the request.
  bool Serves(const ObjectId& id, Instant now) const;

  // A new session with the shard begins at `now`. Returns true if the lease had ended by then.
  bool BeginSession(int shard, Instant now);
  // The shard has received what this node sent at `heard`, in this session.
  void Heard(int shard, Instant heard, absl::Duration lease);
  // The shard has handled the registration of this session.
  void Registered(int shard);
  // The shard that keeps the object.
  int ShardOf(const ObjectId& id) const {
    return phalanx::ShardOf(id, static_cast<int>(leases_.size()));
  }
  bool Valid(int shard, Instant now) const { return now < leases_[Index(shard)].until; }
  // Whether this node can answer calls of its members of the shard's jobs. What became of them in a
  // session that was lost is known when the shard has handled the registration of the next one.
  bool Confirmed(int shard, Instant now) const;
  int shards() const { return static_cast<int>(leases_.size()); }

 private:
  enum class Phase { kFree, kRegistering, kRegistered };
  struct Lease {
    Phase phase = Phase::kFree;
    Instant until = Instant::Infinite();
    // What the session's answers are good for once the shard has handled the registration.
    Instant granted;
  };
  static size_t Index(int shard) { return static_cast<size_t>(shard); }

  std::vector<Lease> leases_;
};

}  // namespace phalanx::object_store

#endif  // PHALANX_OBJECT_STORE_CHANNEL_SHARD_LEASES_H_
