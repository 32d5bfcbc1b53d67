// Generations that were deleted: this node registers them with a shard that has lost its memory, so
// that the shard does not adopt a deleted generation from a node that missed the deletion. Bounded:
// the oldest are forgotten first. Pure.
//
// Thread rule: no thread, lock or clock inside. Owned by the store, on the control loop.
#ifndef PHALANX_OBJECT_STORE_OBJECTS_DELETED_GENERATIONS_H_
#define PHALANX_OBJECT_STORE_OBJECTS_DELETED_GENERATIONS_H_

#include <cstddef>
#include <deque>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "phalanx/object_id.h"
#include "src/common/ids/ids.h"

namespace phalanx::object_store {

class DeletedGenerations {
 public:
  using Entry = std::pair<ObjectId, Generation>;

  explicit DeletedGenerations(size_t max_entries) : max_entries_(max_entries) {}

  // Returns at once if the generation is known.
  void Add(const ObjectId& id, const Generation& generation);
  bool Contains(const ObjectId& id, const Generation& generation) const {
    return entries_.contains({id, generation});
  }
  // In the order of the first Add of each, the oldest first.
  const std::deque<Entry>& by_age() const { return by_age_; }
  // For Defect::kTombstoneForgottenAtRestart.
  void ForgetOrder() { by_age_.clear(); }

  absl::Status CheckInvariants() const;

 private:
  const size_t max_entries_;
  absl::flat_hash_set<Entry> entries_;
  std::deque<Entry> by_age_;
};

}  // namespace phalanx::object_store

#endif  // PHALANX_OBJECT_STORE_OBJECTS_DELETED_GENERATIONS_H_
