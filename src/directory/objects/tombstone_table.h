// The deleted generations of a shard, and which nodes have yet to confirm that they dropped their
// copies of them.
//
//   Add ──► recent ──(options.tombstone_age)──► expired, waits for confirmations ──► erased
//               └──────────── beyond options.max_tombstones ────────────┘──────────────▲
//
// A tombstone refuses its generations, so that a late announcement cannot bring back what a client
// deleted.
//  - A recent one also protects against nodes that were out of touch when the object was deleted:
//    the shard did not know that they had copies, and awaits no confirmation of them.
//  - An expired one protects only against the nodes that were asked to drop their copies and have
//    not confirmed. It ends with the last confirmation.
// Beyond options.max_tombstones the oldest goes, so that an expired one always goes before a recent
// one: nodes that do not confirm must not cost new deletions their tombstones.
//
// Owned by DirectoryCore, the only state it changes is its own. Thread rule: the shard's control
// loop. Invariants
//  1. A tombstone has 1..64 generations, the one that was deleted last first.
//  2. A tombstone is in one of the two lists by age, as `expired` says. An expired one waits for a
//     confirmation.
//  3. A node is listed as unconfirmed for an id exactly while the tombstone waits for the node.
#ifndef PHALANX_DIRECTORY_OBJECTS_TOMBSTONE_TABLE_H_
#define PHALANX_DIRECTORY_OBJECTS_TOMBSTONE_TABLE_H_

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "absl/container/btree_map.h"
#include "absl/container/btree_set.h"
#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/container/inlined_vector.h"
#include "absl/status/status.h"
#include "phalanx/object_id.h"
#include "src/common/ids/ids.h"
#include "src/common/time/instant.h"
#include "src/directory/core/core_context.h"
#include "src/directory/core/validate.h"

namespace phalanx::directory {

// The session of a node that was not asked to drop a copy, because it registers: it is asked if it
// registers the copy.
inline constexpr uint64_t kNotAsked = 0;

struct Tombstone {
  // The generation that was deleted last, then earlier ones and those that stood by. Contains the
  // id of a reduction that was deleted before a generation of its target was adopted.
  absl::InlinedVector<Generation, 1> generations;
  ObjectInfo info;
  // The nodes that were asked to drop a generation and have not confirmed, with the session in
  // which they were asked; kNotAsked for a node whose registration decides.
  absl::btree_map<std::pair<NodeKey, Generation>, uint64_t> unconfirmed;
  // The id was put again: the old generations are refused, but Gets wait for the new one.
  bool revived = false;
  // What was deleted last was deleted because its time to live had passed.
  bool by_ttl = false;
  // A Delete waits for the confirmations: TakeConfirmed has the id.
  bool watched = false;
  Instant since;
  uint64_t order = 0;  // its place by age
  bool expired = false;

  bool Contains(const Generation& generation) const;
};

class TombstoneTable {
 public:
  explicit TombstoneTable(CoreContext& context) : context_(context) {}

  // Returns nullptr if there is no tombstone of `id`.
  Tombstone* Find(const ObjectId& id);
  // Returns the tombstone that refuses this generation, or nullptr.
  Tombstone* FindRefusing(const ObjectId& id, const Generation& generation);
  bool Refuses(const ObjectId& id, const Generation& generation) const;
  // Returns the tombstone of an id that was not put again, or nullptr.
  const Tombstone* FindDeleted(const ObjectId& id) const;

  // The generation was deleted just now. Drops the oldest generation of a full tombstone.
  Tombstone& Add(const ObjectId& id, const Generation& generation);
  // The generation was deleted before those that the tombstone has, or stood by. Does nothing to a
  // full tombstone but start its age again.
  Tombstone& AddOlder(const ObjectId& id, const Generation& generation);
  // The id was put again.
  void Revive(const ObjectId& id);

  // `node` was asked in its session `session` to drop the generation. Ignored if the tombstone does
  // not contain the generation any more.
  void AwaitConfirm(Tombstone& tombstone, const ObjectId& id, const Generation& generation,
                    const NodeKey& node, uint64_t session);
  void Confirm(const ObjectId& id, const Generation& generation, const NodeKey& node);
  // The watched ids of which a confirmation was removed, or the tombstone, since the last call.
  std::vector<ObjectId> TakeConfirmed() { return std::exchange(confirmed_, {}); }
  // The ids of which the node has not confirmed a deletion, in no order.
  absl::flat_hash_set<ObjectId> UnconfirmedBy(const NodeKey& node) const;
  // The node has registered in `session`: what it was asked in earlier sessions and did not
  // register is gone.
  void SessionRegistered(const NodeKey& node, uint64_t session);
  void NodeDown(const NodeKey& node);

  // Erases what has expired by context.now and is confirmed, and what is beyond the limit; a
  // bounded number per call.
  void Expire();
  Instant NextDeadline() const;

  size_t size() const { return tombstones_.size(); }
  // In the order of ids.
  const absl::btree_set<ObjectId>& ids() const { return ids_; }
  absl::Status CheckInvariants() const;

 private:
  Tombstone& GetOrCreate(const ObjectId& id);
  void Erase(const ObjectId& id);
  bool TooMany() const { return tombstones_.size() > context_.options.max_tombstones; }
  using ByAge = absl::btree_map<uint64_t, ObjectId>;  // by order
  ByAge& ListOf(const Tombstone& tombstone) { return tombstone.expired ? expired_ : recent_; }
  void RestartAge(Tombstone& tombstone, const ObjectId& id);
  // Stops waiting for confirmations of a generation.
  void ForgetConfirms(const ObjectId& id, const Generation& generation, Tombstone& tombstone);
  // Stops waiting for what the node was asked in sessions before `session`.
  void ForgetConfirms(const NodeKey& node, uint64_t session);
  // Updates the node's list, and erases the tombstone if it waited for this confirmation only.
  void EndConfirm(const ObjectId& id, const NodeKey& node, Tombstone& tombstone);
  void Unlist(const NodeKey& node, const ObjectId& id);

  CoreContext& context_;
  // Found by hash: there may be a million, and every message about an object looks here.
  absl::flat_hash_map<ObjectId, std::unique_ptr<Tombstone>> tombstones_;
  absl::btree_set<ObjectId> ids_;  // the same ids in order, for the tools
  ByAge recent_;
  ByAge expired_;
  absl::btree_map<NodeKey, absl::flat_hash_set<ObjectId>> unconfirmed_;  // by node
  std::vector<ObjectId> confirmed_;
};

}  // namespace phalanx::directory

#endif  // PHALANX_DIRECTORY_OBJECTS_TOMBSTONE_TABLE_H_
