// A map of at most so many entries: the oldest one makes room for a new one.
//
// Iterates in the order of the keys, so that a core that iterates stays a function of its calls. An
// entry is as old as its Put; looking at an entry does not change its age. Pointers to values are
// valid until the next change of the map. A value; one thread at a time.
#ifndef PHALANX_COMMON_BOUNDED_MAP_H_
#define PHALANX_COMMON_BOUNDED_MAP_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>

#include "absl/container/btree_map.h"
#include "src/common/check.h"

namespace phalanx {

template <typename Key, typename Value>
class BoundedMap {
 public:
  using Entry = std::pair<Key, Value>;

  explicit BoundedMap(size_t max_entries) : max_entries_(max_entries) {}

  // Adds the youngest entry. Returns the oldest entry, removed, if there are too many now.
  // REQUIRES: no entry has this key.
  std::optional<Entry> Put(Key key, Value value) {
    const uint64_t age = next_age_++;
    by_age_.emplace_hint(by_age_.end(), age, key);
    const bool added = entries_.try_emplace(std::move(key), Aged{std::move(value), age}).second;
    PHALANX_CHECK(added, "a new key");
    if (entries_.size() <= max_entries_) return std::nullopt;
    return TakeOldest();
  }

  // Null if there is none.
  Value* Find(const Key& key) {
    const auto found = entries_.find(key);
    return found == entries_.end() ? nullptr : &found->second.value;
  }
  const Value* Find(const Key& key) const { return const_cast<BoundedMap*>(this)->Find(key); }

  // Calls `visit(key, value)` for the entries from the first key that is not below `from` on, in
  // the order of the keys, until it returns false.
  template <typename Visit>
  void VisitFrom(const Key& from, Visit visit) const {
    for (auto at = entries_.lower_bound(from); at != entries_.end(); ++at) {
      if (!visit(at->first, at->second.value)) return;
    }
  }

  // Removes an entry and returns its value; nothing if there is none.
  std::optional<Value> Take(const Key& key) {
    const auto found = entries_.find(key);
    if (found == entries_.end()) return std::nullopt;
    std::optional<Value> taken(std::move(found->second.value));
    by_age_.erase(found->second.age);
    entries_.erase(found);
    return taken;
  }
  // REQUIRES: not empty.
  Entry TakeOldest() {
    PHALANX_CHECK(!empty(), "an entry");
    Key key = by_age_.begin()->second;
    std::optional<Value> value = Take(key);
    return {std::move(key), *std::move(value)};
  }
  // Null if the map is empty.
  const Key* oldest() const { return empty() ? nullptr : &by_age_.begin()->second; }

  size_t size() const { return entries_.size(); }
  bool empty() const { return entries_.empty(); }

 private:
  struct Aged {
    Value value;
    uint64_t age = 0;
  };

  const size_t max_entries_;
  absl::btree_map<Key, Aged> entries_;
  absl::btree_map<uint64_t, Key> by_age_;
  uint64_t next_age_ = 1;
};

}  // namespace phalanx

#endif  // PHALANX_COMMON_BOUNDED_MAP_H_
