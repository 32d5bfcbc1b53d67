#include "src/directory/reductions/results/ended_reductions.h"

#include <optional>

namespace phalanx::directory {

void EndedReductions::Remember(const ObjectId& target, const ReductionId& number,
                               EndedReduction ended) {
  const Key key(target, number);
  if (const auto known = ended_.Take(key)) size_ -= SizeOf(*known);
  size_ += SizeOf(ended);
  if (const auto forgotten = ended_.Put(key, std::move(ended))) size_ -= SizeOf(forgotten->second);
  // Bounded by sources as well: one open reduction can have ten thousand.
  while (size_ > max_entries_) size_ -= SizeOf(ended_.TakeOldest().second);
}

const EndedReduction* EndedReductions::Find(const ObjectId& target,
                                            const ReductionId& number) const {
  return ended_.Find({target, number});
}

std::vector<std::pair<ReductionId, const EndedReduction*>> EndedReductions::Of(
    const ObjectId& target) const {
  std::vector<std::pair<ReductionId, const EndedReduction*>> found;
  ended_.VisitFrom({target, ReductionId()}, [&](const Key& key, const EndedReduction& ended) {
    if (key.first == target) found.push_back({key.second, &ended});
    return key.first == target;
  });
  return found;
}

absl::Status EndedReductions::CheckInvariants() const {
  size_t size = 0;
  ended_.VisitFrom(Key(), [&size](const Key&, const EndedReduction& ended) {
    size += SizeOf(ended);
    return true;
  });
  if (size == size_) return absl::OkStatus();
  return absl::InternalError("reductions that are over are miscounted");
}

}  // namespace phalanx::directory
