// Deletes that are carried out and not acknowledged yet. A Delete is acknowledged when no Get that
// begins later, on any node, can return the deleted bytes. What it waits for:
//
//   a holder with a session       its confirmation (TombstoneTable); the session's end counts as a
//                                 confirmation only for a drawn id
//   a holder without a session    the end of its lease, or its next registration
//   holders of an earlier life    the end of the shard's first lease, while the shard learns
//
// The last two are for ids that can be put again. A node serves its copies of drawn ids
// (random_id.h) without a lease, so a Delete of one does not wait for them.
//
// The requester's own copy is not waited for: its node reads the deletion before the answer.
//
// Owned by DirectoryCore. Thread rule: the shard's control loop; no I/O. Invariants
//  1. Every waiting Delete is in `due_` with the next time at which it is examined.
//  2. A node without a session is in `departed_` until its lease has ended or it has registered.
#ifndef PHALANX_DIRECTORY_DELETIONS_DELETE_WAITS_H_
#define PHALANX_DIRECTORY_DELETIONS_DELETE_WAITS_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/btree_map.h"
#include "absl/container/btree_set.h"
#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "phalanx/object_id.h"
#include "src/common/ids/ids.h"
#include "src/common/time/instant.h"
#include "src/directory/core/core_context.h"
#include "src/directory/core/node_table.h"
#include "src/directory/core/outbox.h"
#include "src/directory/core/recovery_gate.h"
#include "src/directory/objects/tombstone_table.h"

namespace phalanx::directory {

class DeleteWaits {
 public:
  // All of them outlive this.
  DeleteWaits(CoreContext& context, const NodeTable& nodes, Outbox& outbox,
              const RecoveryGate& gate, TombstoneTable& tombstones)
      : context_(context), nodes_(nodes), outbox_(outbox), gate_(gate), tombstones_(tombstones) {}

  // The object was deleted for this request, now or before: answers it now or later.
  // REQUIRES: the id has a tombstone, and `node` a session.
  void Begin(const ObjectId& id, const NodeKey& node, uint64_t request_id);

  // The node's session ends; it can serve its copies of names until `serves_until`. Call before the
  // node's objects are settled and before the tombstones forget the node.
  void NodeDown(const Node& node, Instant serves_until);
  // The node has registered: what it still has of deleted objects, it was asked to drop.
  void SessionRegistered(const NodeKey& node);
  // The shard has learned.
  void EndLearning();

  // Answers what need not wait any more; at the end of a turn.
  void RunPending();
  Instant NextDeadline() const { return due_.empty() ? Instant::Infinite() : due_.begin()->first; }

  // The nodes that a Delete of the object waits for, for people; empty if no Delete waits.
  std::string WaitsFor(const ObjectId& id) const;
  size_t size() const { return waits_.size(); }
  absl::Status CheckInvariants() const;

 private:
  struct Requester {
    NodeKey node;
    uint64_t session = 0;
    uint64_t request_id = 0;
  };
  struct Wait {
    std::vector<Requester> requesters;
    Instant due;        // the next time at which it is examined
    Instant report_at;  // when the requesters are notified of the reason again
  };
  struct Departed {
    std::string name;
    Instant serves_until;
    absl::flat_hash_set<ObjectId> objects;  // names only
  };

  void Examine(const ObjectId& id);
  // Until when nodes without a session can serve the object.
  Instant ServedUntil(const ObjectId& id) const;
  bool AwaitsConfirmation(const Tombstone& tombstone, const Requester& requester) const;
  void Reply(const ObjectId& id, const Requester& requester);
  void ReportReason(const ObjectId& id, const Wait& wait);
  void SetDue(const ObjectId& id, Wait& wait, Instant due);

  CoreContext& context_;
  const NodeTable& nodes_;
  Outbox& outbox_;
  const RecoveryGate& gate_;
  TombstoneTable& tombstones_;
  absl::btree_map<ObjectId, Wait> waits_;
  absl::btree_set<std::pair<Instant, ObjectId>> due_;
  absl::btree_map<NodeKey, Departed> departed_;
};

}  // namespace phalanx::directory

#endif  // PHALANX_DIRECTORY_DELETIONS_DELETE_WAITS_H_
