// Which objects are held, and by how many nodes, as the nodes tell their shard; and what becomes of
// the holds of a node whose session has ended: they count for a while longer, and the node may come
// back with them. Pure.
//
//   session begins ──► told before: stale ──► RegisterHolds ──► registered: what is stale goes
//   session ends   ──► counts until `until` ──► session begins, or Expire
//
// Bounded by the number of holds of all nodes. A node of which some were not recorded holds, for
// all that is known, everything: complete() is false until it has told its holds again, or is gone.
//
// Thread rule: no thread, lock or clock inside. Owned by the directory's core.
#ifndef PHALANX_DIRECTORY_HOLD_SETS_H_
#define PHALANX_DIRECTORY_HOLD_SETS_H_

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
#include "src/common/ids.h"
#include "src/common/instant.h"

namespace phalanx::directory {

class HoldSets {
 public:
  explicit HoldSets(size_t max_holds) : max_holds_(max_holds) {}

  // ---- what nodes tell. REQUIRES: the node's session goes on.
  void Hold(const NodeKey& node, const ObjectId& id);
  void Unhold(const NodeKey& node, const ObjectId& id);

  // ---- sessions
  // What it held in an earlier one is stale, and counts.
  void SessionBegins(const NodeKey& node);
  // It has told all its holds.
  void Registered(const NodeKey& node);
  // What it holds counts until then.
  void SessionEnds(const NodeKey& node, Instant until);
  void Expire(Instant now);
  // No node is given up before `until`.
  void Postpone(Instant until);
  Instant NextDeadline() const;

  // ---- looking
  bool Held(const ObjectId& id) const { return holders_.contains(id); }
  uint32_t Holders(const ObjectId& id) const;
  bool HeldBy(const NodeKey& node, const ObjectId& id) const;
  // Every hold that was told is recorded.
  bool complete() const;
  // Over all nodes.
  size_t holds() const { return holds_; }

  // Ids that somebody held and nobody does any more, since the last call; one may be held again.
  std::vector<ObjectId> TakeUnheld();

  absl::Status CheckInvariants() const;

 private:
  struct Node {
    absl::flat_hash_set<ObjectId> ids;
    absl::flat_hash_set<ObjectId> stale;
    // Some are not recorded: of this session, of an earlier one.
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

#endif  // PHALANX_DIRECTORY_HOLD_SETS_H_
