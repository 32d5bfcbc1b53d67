#include "src/directory/ended_reductions.h"

namespace phalanx::directory {

void EndedReductions::Remember(const ObjectId& target, const Generation& number,
                               EndedReduction ended) {
  const Key key(target, number);
  if (const auto known = entries_.find(key); known != entries_.end()) Forget(known);
  const uint64_t order = next_order_++;
  Entry& entry = entries_[key];
  entry = {std::move(ended), order};
  size_ += entry.size();
  by_age_[order] = key;
  while (entries_.size() > max_reductions_ || size_ > max_entries_) {
    Forget(entries_.find(by_age_.begin()->second));
  }
}

void EndedReductions::Forget(absl::btree_map<Key, Entry>::iterator entry) {
  size_ -= entry->second.size();
  by_age_.erase(entry->second.order);
  entries_.erase(entry);
}

const EndedReduction* EndedReductions::Find(const ObjectId& target,
                                            const Generation& number) const {
  const auto found = entries_.find({target, number});
  return found == entries_.end() ? nullptr : &found->second.ended;
}

std::vector<std::pair<Generation, const EndedReduction*>> EndedReductions::Of(
    const ObjectId& target) const {
  std::vector<std::pair<Generation, const EndedReduction*>> found;
  for (auto at = entries_.lower_bound({target, Generation()});
       at != entries_.end() && at->first.first == target; ++at) {
    found.push_back({at->first.second, &at->second.ended});
  }
  return found;
}

absl::Status EndedReductions::CheckInvariants() const {
  size_t size = 0;
  for (const auto& [key, entry] : entries_) size += entry.size();
  if (entries_.size() == by_age_.size() && size == size_) return absl::OkStatus();
  return absl::InternalError("reductions that are over are miscounted");
}

}  // namespace phalanx::directory
