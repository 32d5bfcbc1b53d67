// The bytes of small objects, of which the shard answers Gets itself; bounded, least recently used
// first out.
//
// Each object embeds an Entry, so that a look at its bytes costs no search; only the cache writes
// it. The owner of the objects evicts: while over_limit(), it removes the entry of oldest(). Owned
// by DirectoryCore. Thread rule: the shard's control loop.
#ifndef PHALANX_DIRECTORY_OBJECTS_INLINE_CACHE_H_
#define PHALANX_DIRECTORY_OBJECTS_INLINE_CACHE_H_

#include <cstdint>
#include <list>
#include <string>
#include <utility>

#include "phalanx/object_id.h"

namespace phalanx::directory {

class InlineCache {
 public:
  class Entry {
   public:
    bool cached() const { return cached_; }
    // Empty unless cached.
    const std::string& bytes() const { return bytes_; }

   private:
    friend class InlineCache;
    bool cached_ = false;
    std::string bytes_;
    std::list<ObjectId>::iterator age_;
  };

  explicit InlineCache(uint64_t max_bytes) : max_bytes_(max_bytes) {}

  // Returns false, and changes nothing, if the entry has bytes already or these can never fit.
  bool Add(const ObjectId& id, Entry& entry, const std::string& bytes) {
    if (bytes.size() > max_bytes_ || entry.cached_) return false;
    entry.cached_ = true;
    entry.bytes_ = bytes;
    by_age_.push_front(id);
    entry.age_ = by_age_.begin();
    bytes_ += bytes.size();
    return true;
  }
  // REQUIRES: entry.cached()
  void Remove(Entry& entry) {
    entry.cached_ = false;
    bytes_ -= entry.bytes_.size();
    std::string().swap(entry.bytes_);
    by_age_.erase(entry.age_);
  }
  // The bytes were used. REQUIRES: entry.cached()
  void Touch(Entry& entry) { by_age_.splice(by_age_.begin(), by_age_, entry.age_); }

  bool over_limit() const { return bytes_ > max_bytes_; }
  // REQUIRES: an entry is cached.
  const ObjectId& oldest() const { return by_age_.back(); }
  uint64_t bytes() const { return bytes_; }

 private:
  const uint64_t max_bytes_;
  uint64_t bytes_ = 0;
  std::list<ObjectId> by_age_;  // front: used last
};

}  // namespace phalanx::directory

#endif  // PHALANX_DIRECTORY_OBJECTS_INLINE_CACHE_H_
