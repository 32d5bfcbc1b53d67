// The objects that nodes hold, with the number of holding nodes, as each node reports them to the
// shard. If a node's session ends, its holds count for a while longer, because the node can return
// with them. Pure.
//
//   session begins ──► earlier holds: stale ──► RegisterHolds ──► registered: drop the stale holds
//   session ends   ──► they count until `until` ──► session begins, or Expire
//
// Bounded by the number of holds of all nodes. If some holds of a node were not recorded, that node
// could hold any object: complete() is false until the node has registered its holds again, or is
// gone.
//
// Thread rule: no thread, lock or clock inside. Owned by the directory's core.
#ifndef PHALANX_DIRECTORY_OBJECTS_HOLD_SETS_H_
#define PHALANX_DIRECTORY_OBJECTS_HOLD_SETS_H_

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "absl/container/btree_map.h"
#include "absl/container/btree_set.h"
#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "phalanx/object_id.h"
#include "src/common/ids/ids.h"
#include "src/common/time/instant.h"

namespace phalanx::directory {

class HoldSets {
 public:
  explicit HoldSets(size_t max_holds) : max_holds_(max_holds) {}

  // ---- reports of nodes. REQUIRES: the node has a session.
  void Hold(const NodeKey& node, const ObjectId& id);
  void Unhold(const NodeKey& node, const ObjectId& id);

  // ---- sessions
  // The holds of the node's earlier session become stale. Stale holds still count.
  void SessionBegins(const NodeKey& node);
  // The node has registered all its holds: drops the stale ones.
  void Registered(const NodeKey& node);
  // The node's holds count until `until`.
  void SessionEnds(const NodeKey& node, Instant until);
  void Expire(Instant now);
  // Keeps the holds of every node without a session at least until `until`.
  void Postpone(Instant until);
  Instant NextDeadline() const;

  // ---- queries
  bool Held(const ObjectId& id) const { return holders_.contains(id); }
  uint32_t Holders(const ObjectId& id) const;
  bool HeldBy(const NodeKey& node, const ObjectId& id) const;
  // Returns true if every reported hold is recorded.
  bool complete() const;
  // Over all nodes.
  size_t holds() const { return holds_; }

  // Returns the ids whose last hold was dropped since the last call. Such an id can be held again
  // by now.
  std::vector<ObjectId> TakeUnheld();

  absl::Status CheckInvariants() const;

 private:
  struct Node {
    absl::flat_hash_set<ObjectId> ids;
    absl::flat_hash_set<ObjectId> stale;
    // True if some holds were not recorded: of this session, of an earlier session.
    bool more = false;
    bool more_stale = false;
    Instant until = Instant::Infinite();
  };

  void SetUntil(const NodeKey& key, Node& node, Instant until);
  void Drop(const ObjectId& id);
  void DropAll(const absl::flat_hash_set<ObjectId>& ids);

  const size_t max_holds_;
  size_t holds_ = 0;
  bool ever_too_many_ = false;
  absl::btree_map<NodeKey, Node> nodes_;
  absl::btree_set<std::pair<Instant, NodeKey>> ending_;
  absl::flat_hash_map<ObjectId, uint32_t> holders_;
  std::vector<ObjectId> unheld_;
};

}  // namespace phalanx::directory

#endif  // PHALANX_DIRECTORY_OBJECTS_HOLD_SETS_H_
