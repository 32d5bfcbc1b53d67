#include "src/ps/key_lists.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "src/common/check.h"

namespace phalanx::ps::internal {

// Two lists of one table with one hash would mix up keys without notice: 128 bits make that as rare
// as a broken memory.
KeyHash HashOf(uint32_t table, absl::Span<const Key> keys) {
  // The same list of two tables has two hashes. Lists are not compared: key_lists.h says how
  // unlikely two of one hash are.
  const XXH128_hash_t hash =
      XXH3_128bits_withSeed(keys.data(), keys.size() * sizeof(Key), /*seed=*/table);
  return {hash.high64, hash.low64};
}

KeyList KeyLists::Find(const KeyHash& hash) const {
  const auto found = lists_.find(hash);
  return found == lists_.end() ? nullptr : found->second;
}

void KeyLists::Add(const KeyHash& hash, KeyList keys) {
  PHALANX_CHECK(keys != nullptr, "a list to add");
  // Counted before the limit is looked at, in the same order on both ends.
  bytes_ += keys->size() * sizeof(Key);
  const bool added = lists_.emplace(hash, std::move(keys)).second;
  PHALANX_CHECK(added, "a list is added once");
  order_.push_back(hash);
  // Only what both ends know decides, so that both drop the same lists.
  while (order_.size() > kMaxLists || bytes_ > kMaxListBytes) {
    const auto oldest = lists_.find(order_.front());
    bytes_ -= oldest->second->size() * sizeof(Key);
    lists_.erase(oldest);
    order_.pop_front();
  }
}

// Both ends do this when a channel begins.
void KeyLists::Clear() {
  lists_.clear();
  order_.clear();
  bytes_ = 0;
}

}  // namespace phalanx::ps::internal
