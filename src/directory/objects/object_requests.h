// Requests about one object: delete, query, evict, fail; and what a deleted generation means for
// the object and its reduction.
//
// Owned by DirectoryCore, above the components whose state a Delete touches. Thread rule: the
// shard's control loop; no I/O.
#ifndef PHALANX_DIRECTORY_OBJECTS_OBJECT_REQUESTS_H_
#define PHALANX_DIRECTORY_OBJECTS_OBJECT_REQUESTS_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "phalanx/object_id.h"
#include "phalanx/v1/directory.pb.h"
#include "src/common/ids/ids.h"
#include "src/directory/deletions/delete_waits.h"
#include "src/directory/objects/expiry_queue.h"
#include "src/directory/objects/object_table.h"
#include "src/directory/placement/copy_keeper.h"
#include "src/directory/placement/drain_manager.h"
#include "src/directory/placement/placement_manager.h"
#include "src/directory/placement/placement_table.h"
#include "src/directory/pulls/pull_scheduler.h"
#include "src/directory/reductions/reduction_manager.h"

namespace phalanx::directory {

class ObjectRequests final : public DeletedResultListener, public ObjectFreer {
 public:
  // What the requests stand on; all of it outlives them.
  struct Parts {
    CoreContext& context;
    NodeTable& nodes;
    Outbox& outbox;
    RecoveryGate& gate;
    const HoldSets& holds;
    TombstoneTable& tombstones;
    LossTable& losses;
    FailureTable& failures;
    PlacementTable& placement_table;
    const ExpiryQueue& expiries;
    ObjectTable& objects;
    PullScheduler& pulls;
    DrainManager& drains;
    PlacementManager& placements;
    ReductionManager& reductions;
  };

  explicit ObjectRequests(const Parts& parts)
      : parts_(parts),
        delete_waits_(parts.context, parts.nodes, parts.outbox, parts.gate, parts.tombstones) {}

  // The Deletes that are not acknowledged yet.
  DeleteWaits& delete_waits() { return delete_waits_; }
  const DeleteWaits& delete_waits() const { return delete_waits_; }

  // ---- messages of nodes. InvalidArgument names the field; nothing is changed then.
  absl::Status OnDelete(Node& node, const v1::DeleteRequest& m);
  absl::Status OnDeleteConfirm(Node& node, const v1::DeleteConfirm& m);
  absl::Status OnQuery(Node& node, const v1::QueryRequest& m);
  absl::Status OnEvict(Node& node, const v1::EvictRequest& m);
  absl::Status OnFail(Node& node, const v1::FailRequest& m);
  absl::Status OnRegisterTombstone(const v1::RegisterTombstone& m);

  // The answers, at once or when the gate has opened.
  void AnswerDelete(const ObjectId& id, const NodeKey& node, uint64_t request_id);
  void AnswerQuery(const ObjectId& id, const NodeKey& node, uint64_t request_id,
                   absl::Span<const std::string> names);

  // Why a generation is deleted.
  enum class Cause {
    kRequest,   // a Delete, or no node holds it
    kExpiry,    // its time to live has passed
    kDeletion,  // it turns out to have been deleted in an earlier life of the shard
  };
  // Notifies every node that has a part in the object, and leaves the tombstone. The object may be
  // gone after it. With kDeletion, spares the other generations: nodes that want the object wait
  // for what was put after the Delete.
  void DeleteObject(Object& object, Cause cause);
  void Free(Object& object) override { DeleteObject(object, Cause::kRequest); }
  // Deletes the objects whose time to live has passed, at most ExpiryQueue::kMaxPerTurn of them.
  void ExpireDue();
  // Deletes the object if its time to live has passed: a message about it finds it deleted, however
  // many objects are due.
  void ExpireIfDue(const ObjectId& id);
  // A node has registered that the generation was deleted.
  void OnDeletedGeneration(const ObjectId& id, const Generation& generation) override;

 private:
  // REQUIRES: the object is in the queue of expiries.
  void Expire(const ObjectId& id);
  void DeleteStandbys(Object& object, Tombstone& tombstone, bool spare_others);
  // Nodes that were receiving what is deleted still want the object.
  void VoidReceivers(Object& object);
  // For a reduction without an adopted result: leaves a tombstone of its id.
  void AddReductionTombstone(const ObjectId& id, const ReductionId& reduction_id);
  // For an object without a copy: leaves a tombstone of the lost generation.
  void AddLostTombstone(const ObjectId& id);

  const Parts parts_;
  DeleteWaits delete_waits_;
};

}  // namespace phalanx::directory

#endif  // PHALANX_DIRECTORY_OBJECTS_OBJECT_REQUESTS_H_
