// When the objects with a time to live are deleted, earliest first.
//
//   Put(ttl) ──adopted──► queued ──the time passes──► due ──► deleted, as by a Delete
//                            └── deleted before, void, or released ──► (removed)
//
// Only ObjectTable changes it. An object without a time to live has no entry and costs nothing.
//
// Owned by DirectoryCore. Thread rule: the shard's control loop. Invariants
//  1. The two containers have the same entries, and none is infinite.
//  2. Each entry belongs to an adopted generation (ObjectTable::CheckInvariants).
#ifndef PHALANX_DIRECTORY_OBJECTS_EXPIRY_QUEUE_H_
#define PHALANX_DIRECTORY_OBJECTS_EXPIRY_QUEUE_H_

#include <utility>

#include "absl/container/btree_set.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "phalanx/object_id.h"
#include "src/common/time/instant.h"

namespace phalanx::directory {

class ExpiryQueue {
 public:
  // One turn of the shard deletes at most this many objects because of their time to live; the next
  // turn, which follows at once, deletes others.
  static constexpr int kMaxPerTurn = 1024;

  // The object is due at `when`, instead of any earlier call's time; never, if that is infinite.
  void Set(const ObjectId& id, Instant when) {
    const auto known = at_.find(id);
    if (known != at_.end()) {
      order_.erase({known->second, id});
      at_.erase(known);
    }
    if (when.infinite()) return;
    at_.emplace(id, when);
    order_.emplace(when, id);
  }

  // Infinite if the object has no time to live.
  Instant Find(const ObjectId& id) const {
    const auto known = at_.find(id);
    return known == at_.end() ? Instant::Infinite() : known->second;
  }

  // Returns the object that is due first, or nullptr if none is due at `now`. The pointer is valid
  // until the next Set.
  const ObjectId* FirstDue(Instant now) const {
    return order_.empty() || now < order_.begin()->first ? nullptr : &order_.begin()->second;
  }
  // Infinite if the queue is empty.
  Instant NextDeadline() const {
    return order_.empty() ? Instant::Infinite() : order_.begin()->first;
  }
  size_t size() const { return at_.size(); }
  bool empty() const { return at_.empty(); }

  absl::Status CheckInvariants() const {
    if (at_.size() != order_.size()) return absl::InternalError("expiries: two sizes");
    for (const auto& [when, id] : order_) {
      if (when.infinite() || Find(id) != when) return absl::InternalError("expiries: two times");
    }
    return absl::OkStatus();
  }

 private:
  absl::flat_hash_map<ObjectId, Instant> at_;
  absl::btree_set<std::pair<Instant, ObjectId>> order_;
};

}  // namespace phalanx::directory

#endif  // PHALANX_DIRECTORY_OBJECTS_EXPIRY_QUEUE_H_
