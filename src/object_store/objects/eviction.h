// Which request gets memory next, and which copies make room for it. Pure.
//
// Requests get memory in the order in which they came. A request that eviction can make room for
// gets memory before all later ones. A request that only a Delete or a Release can make room for
// lets later requests pass, since the Delete can depend on one of these. A request holds no memory
// while it waits, so requests cannot wait for each other in a circle.
//
// A copy is chosen here, least recently used first. The store asks the copy's shard, and drops the
// copy only if the shard grants that. A refused copy is not chosen again for kRefusalHolds.
//
// Thread rule: no thread, lock or clock inside. Owned by the store, on the control loop.
#ifndef PHALANX_OBJECT_STORE_OBJECTS_EVICTION_H_
#define PHALANX_OBJECT_STORE_OBJECTS_EVICTION_H_

#include <cstdint>
#include <map>
#include <set>
#include <vector>

#include "src/common/time/instant.h"
#include "src/object_store/objects/object_table.h"

namespace phalanx::object_store {

class Eviction {
 public:
  // Requests to the shards that are open at a time.
  static constexpr size_t kMaxAsked = 1024;
  static constexpr absl::Duration kRefusalHolds = absl::Seconds(1);

  // `table` outlives this.
  explicit Eviction(ObjectTable& table) : table_(table) {}

  // Reserves the bytes and returns true if no request waits that comes before. Else changes
  // nothing.
  bool TryNow(uint64_t bytes);

  using Ticket = uint64_t;  // never 0, never reused
  // Joins the queue. REQUIRES: bytes <= capacity.
  Ticket Wait(uint64_t bytes);
  // Leaves the queue; unknown tickets (granted ones too) are ignored.
  void Cancel(Ticket ticket);

  struct Decisions {
    std::vector<Ticket> granted;  // their memory is reserved
    std::vector<Copy*> ask;       // marked as asked
    // Partial copies without a pull or a writer, to be given up.
    std::vector<Copy*> give_up;
  };
  // Does what can be done now. The owner calls this after anything that frees memory, adds a
  // candidate or a request, and when NextDeadline has passed.
  Decisions Decide(Instant now);

  // The shard refused: the copy stays.
  void Refused(Copy* copy, Instant now);

  // Infinite while no request waits.
  Instant NextDeadline() const;
  size_t waiting() const { return queue_.size(); }
  uint64_t waiting_bytes() const { return waiting_bytes_; }

 private:
  void Leave(std::map<Ticket, uint64_t>::iterator it);
  void AskFor(uint64_t bytes, Decisions& decisions);
  void GiveUpFor(uint64_t bytes, Decisions& decisions);

  ObjectTable& table_;
  Ticket next_ticket_ = 1;
  std::map<Ticket, uint64_t> queue_;  // bytes, in order of arrival
  std::multiset<uint64_t> sizes_;     // of those in the queue
  uint64_t waiting_bytes_ = 0;
};

}  // namespace phalanx::object_store

#endif  // PHALANX_OBJECT_STORE_OBJECTS_EVICTION_H_
