// KeyLists: the key lists that one end of a channel has sent lately, so that the same list travels
// again as 16 bytes. Both ends of a channel keep the same lists: each adds a list when it sends or
// takes it, in the same order, and drops the oldest ones beyond the limits.
//
// Pure. Belongs to one end of a channel. One thread at a time.
#ifndef PHALANX_PS_KEY_LISTS_H_
#define PHALANX_PS_KEY_LISTS_H_

#include <compare>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/types/span.h"
#include "phalanx/ps_table.h"

namespace phalanx::ps::internal {

// Of the table's number and the keys (XXH3, 128 bits). That two lists of a channel have one hash
// has a chance of 2^-64 at 2^32 lists; it is not checked.
struct KeyHash {
  uint64_t high = 0;
  uint64_t low = 0;
  friend auto operator<=>(const KeyHash&, const KeyHash&) = default;
  template <typename H>
  friend H AbslHashValue(H h, const KeyHash& hash) {
    return H::combine(std::move(h), hash.low);
  }
};
KeyHash HashOf(uint32_t table, absl::Span<const Key> keys);

// Shorter lists travel as they are.
inline constexpr size_t kMinListedKeys = 16;
// Of one end of a channel: 12 million keys.
inline constexpr size_t kMaxLists = 4096;
inline constexpr size_t kMaxListBytes = size_t{96} << 20;

using KeyList = std::shared_ptr<const std::vector<Key>>;

class KeyLists {
 public:
  // Null: not there (any more). Does not change the order.
  KeyList Find(const KeyHash& hash) const;
  // Adds a list that is not there, as the newest one, and drops the oldest ones beyond the limits.
  // A list that is greater than kMaxListBytes alone drops all, and is not kept.
  void Add(const KeyHash& hash, KeyList keys);
  void Clear();

  size_t size() const { return order_.size(); }
  // Of the keys.
  size_t bytes() const { return bytes_; }

 private:
  absl::flat_hash_map<KeyHash, KeyList> lists_;
  std::deque<KeyHash> order_;  // the oldest first
  size_t bytes_ = 0;
};

}  // namespace phalanx::ps::internal

#endif  // PHALANX_PS_KEY_LISTS_H_
