// The objects without a complete copy, with the reason that waiting Gets receive and the placement
// policy that is restored if a node returns with a copy.
//
// Bounded by options.max_lost, the oldest forgotten first, and by options.max_lost_name_bytes of
// node names in policies, beyond which a policy is not kept. Owned by DirectoryCore. Thread rule:
// the shard's control loop.
#ifndef PHALANX_DIRECTORY_OBJECTS_LOSS_TABLE_H_
#define PHALANX_DIRECTORY_OBJECTS_LOSS_TABLE_H_

#include <cstdint>
#include <map>
#include <string>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "phalanx/object_id.h"
#include "src/common/ids/ids.h"
#include "src/directory/core/core_context.h"
#include "src/directory/placement/placement_policy.h"

namespace phalanx::directory {

struct LostObject {
  Generation generation;
  std::string reason;           // names the node that had the last complete copy
  PlacementPolicy policy = {};  // the last one that any holder may know
  uint64_t order = 0;
};

class LossTable {
 public:
  explicit LossTable(CoreContext& context) : context_(context) {}

  // The last complete copy, on `last_holder`, is gone. Does nothing if the loss is known.
  void Add(const ObjectId& id, const Generation& generation, absl::string_view last_holder);
  void Erase(const ObjectId& id);
  // Returns nullptr if the object is not lost.
  const LostObject* Find(const ObjectId& id) const;
  // Returns true if this generation was the one that was lost.
  bool Contains(const ObjectId& id, const Generation& generation) const;
  // Does nothing if the object is not lost.
  void SetPolicy(const ObjectId& id, PlacementPolicy policy);

  absl::Status CheckInvariants() const;

 private:
  CoreContext& context_;
  absl::flat_hash_map<ObjectId, LostObject> lost_;
  std::map<uint64_t, ObjectId> by_age_;
  size_t name_bytes_ = 0;  // of the policies
};

}  // namespace phalanx::directory

#endif  // PHALANX_DIRECTORY_OBJECTS_LOSS_TABLE_H_
