#include "src/object_store/objects/deleted_generations.h"

namespace phalanx::object_store {

void DeletedGenerations::Add(const ObjectId& id, const Generation& generation) {
  // A deletion that is reported again keeps its age: a repeated report must not push out others.
  if (!entries_.emplace(id, generation).second) return;
  by_age_.emplace_back(id, generation);
  if (by_age_.size() <= max_entries_) return;
  entries_.erase(by_age_.front());
  by_age_.pop_front();
}

absl::Status DeletedGenerations::CheckInvariants() const {
  if (by_age_.size() > max_entries_) return absl::InternalError("too many tombstones");
  for (const Entry& entry : by_age_) {
    if (!entries_.contains(entry))
      return absl::InternalError("a tombstone is in the list, but not in the table");
  }
  return absl::OkStatus();
}

}  // namespace phalanx::object_store
