// What the shards have said of sticky broadcasts of copies that are here. A shard that has lost its
// memory learns it from the nodes' registrations. Pure.
//
// Thread rule: no thread, lock or clock inside. Owned by the store, on the control loop.
#ifndef PHALANX_OBJECT_STORE_OBJECTS_STICKY_MARKS_H_
#define PHALANX_OBJECT_STORE_OBJECTS_STICKY_MARKS_H_

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "phalanx/object_id.h"
#include "phalanx/v1/directory.pb.h"
#include "src/common/ids/ids.h"

namespace phalanx::object_store {

class StickyMarks {
 public:
  explicit StickyMarks(int num_shards) : last_stamps_(static_cast<size_t>(num_shards)) {}

  // The mark of a copy that is here.
  void Set(const ObjectId& id, const Generation& generation, const v1::StickyMark& mark) {
    marks_[{id, generation}] = mark;
  }
  // The copy is gone.
  void Forget(const ObjectId& id, const Generation& generation) { marks_.erase({id, generation}); }
  // Null if there is none.
  const v1::StickyMark* Find(const ObjectId& id, const Generation& generation) const {
    const auto it = marks_.find({id, generation});
    return it == marks_.end() ? nullptr : &it->second;
  }
  // The shard has used this stamp. Every node keeps the greatest stamp of each shard: a shard that
  // begins again continues behind it, so that an older mark never wins over a newer one.
  void NoteStamp(int shard, uint64_t stamp) {
    uint64_t& last = last_stamps_[static_cast<size_t>(shard)];
    last = std::max(last, stamp);
  }
  uint64_t LastStamp(int shard) const { return last_stamps_[static_cast<size_t>(shard)]; }
  size_t size() const { return marks_.size(); }

 private:
  absl::flat_hash_map<std::pair<ObjectId, Generation>, v1::StickyMark> marks_;
  std::vector<uint64_t> last_stamps_;  // by shard
};

}  // namespace phalanx::object_store

#endif  // PHALANX_OBJECT_STORE_OBJECTS_STICKY_MARKS_H_
