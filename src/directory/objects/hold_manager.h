// References: which nodes hold which objects, and which owned objects are freed because no node
// holds them (docs/lifetime.md).
//
// An owned object without a hold is deleted, as by a Delete, at the end of the turn in which its
// last hold ended. While a reduction or a grace period needs the object (MayFree), it stays; when
// that ends, the component notes the id as unreferenced again.
//
// Owned by DirectoryCore. Thread rule: the shard's control loop; no I/O.
#ifndef PHALANX_DIRECTORY_OBJECTS_HOLD_MANAGER_H_
#define PHALANX_DIRECTORY_OBJECTS_HOLD_MANAGER_H_

#include <cstdint>

#include "absl/status/status.h"
#include "phalanx/object_id.h"
#include "phalanx/v1/directory.pb.h"
#include "src/common/ids/ids.h"
#include "src/directory/objects/hold_sets.h"
#include "src/directory/objects/object_table.h"

namespace phalanx::directory {

class HoldManager {
 public:
  // What the manager stands on; all of it outlives it.
  struct Parts {
    CoreContext& context;
    const NodeTable& nodes;
    Outbox& outbox;
    RecoveryGate& gate;
    HoldSets& holds;
    const TombstoneTable& tombstones;
    ObjectTable& objects;
    ObjectReductions& reductions;
    ObjectFreer& freer;
  };

  explicit HoldManager(const Parts& parts) : parts_(parts) {}

  // ---- messages of nodes. InvalidArgument names the field; nothing is changed then.
  absl::Status OnRegisterHolds(Node& node, const v1::RegisterHolds& m);
  absl::Status OnHold(Node& node, const v1::Hold& m);
  absl::Status OnUnhold(Node& node, const v1::Unhold& m);
  absl::Status OnClaim(Node& node, const v1::Claim& m);
  absl::Status OnKeep(Node& node, const v1::KeepRequest& m);
  // Called at once, or when the gate has opened.
  void AnswerKeep(const ObjectId& id, const NodeKey& node, uint64_t request_id);

  // Deletes what can be freed, and notes the open reductions that no node holds any more. Returns
  // false if there was nothing to look at.
  bool FreeUnreferenced();

 private:
  // Returns true if no node holds the owned object and nothing else needs it.
  bool MayFree(const Object& object) const;
  // If every hold is recorded again, notes the objects that unrecorded holds may have kept.
  void ReviewUnreferenced();

  const Parts parts_;
  bool holds_were_complete_ = true;
};

}  // namespace phalanx::directory

#endif  // PHALANX_DIRECTORY_OBJECTS_HOLD_MANAGER_H_
