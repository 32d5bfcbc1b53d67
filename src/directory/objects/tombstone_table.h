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
// There may be a million, so a tombstone has what all of them need in 72 bytes. Those that wait for
// confirmations, or have several generations, have Details beside it. docs/operations.md says what
// they take (Sizing).
//
// Owned by DirectoryCore, the only state it changes is its own. Thread rule: the shard's control
// loop. Invariants
//  1. A tombstone has 1..64 generations, the one that was deleted last first.
//  2. A tombstone is in one of the two lists by age, as `expired` says. An expired one waits for a
//     confirmation.
//  3. A node is listed as unconfirmed for an id exactly while the tombstone waits for the node, and
//     the tombstone waits for at most 64 confirmations of it. So all waits are bounded by the
//     tombstones and the sessions.
//  4. A tombstone has Details, as `detailed` says, exactly while they say something.
#ifndef PHALANX_DIRECTORY_OBJECTS_TOMBSTONE_TABLE_H_
#define PHALANX_DIRECTORY_OBJECTS_TOMBSTONE_TABLE_H_

#include <cstdint>
#include <limits>
#include <memory>
#include <utility>
#include <vector>

#include "absl/container/btree_map.h"
#include "absl/container/btree_set.h"
#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "phalanx/object_id.h"
#include "src/common/ids/ids.h"
#include "src/common/ids/object_name.h"
#include "src/common/time/instant.h"
#include "src/directory/core/core_context.h"

namespace phalanx::directory {

// The session of a node that was not asked to drop a copy, because it registers: it is asked if it
// registers the copy.
inline constexpr uint64_t kNotAsked = 0;

struct Tombstone {
  // For the tools. Of an object of which nothing is known, the size is 0.
  void SetObject(uint64_t object_size_bytes, uint32_t object_slices, const ObjectName& object_name);
  ObjectName Name() const;

  ObjectId id;
  // In seconds since the shard's start, rounded up: four bytes are enough for 136 years.
  uint32_t since_s = 0;
  // The generation that was deleted last, or the id of a reduction that was deleted before a
  // generation of its target was adopted.
  Generation last;
  uint64_t size_bytes : 48 = 0;
  uint64_t slices : 8 = 1;
  // The id was put again: the old generations are refused, but Gets wait for the new one.
  uint64_t revived : 1 = false;
  // What was deleted last was deleted because its time to live had passed.
  uint64_t by_ttl : 1 = false;
  // A Delete waits for the confirmations: TakeConfirmed has the id.
  uint64_t watched : 1 = false;

 private:
  friend class TombstoneTable;
  uint64_t expired : 1 = false;   // the list by age that it is in
  uint64_t detailed : 1 = false;  // TombstoneTable has Details of it
  // The neighbours in the list by age.
  uint32_t older = 0;
  uint32_t younger = 0;
  // The namespace and the name, which have no zero bytes, each with a zero byte behind it; nullptr
  // without a name.
  std::unique_ptr<char[]> name;
};
static_assert(sizeof(Tombstone) == 72);
static_assert(kMaxObjectBytes < uint64_t{1} << 48 && kMaxSlices < 1 << 8);

class TombstoneTable {
 public:
  // When a node was asked to drop a generation: in which session, kNotAsked if its registration
  // decides, and the number of the question.
  struct Asked {
    uint64_t session = 0;
    uint64_t number = 0;
  };
  // The nodes that were asked and have not confirmed.
  using Unconfirmed = absl::btree_map<std::pair<NodeKey, Generation>, Asked>;

  explicit TombstoneTable(CoreContext& context) : context_(context) {}
  TombstoneTable(const TombstoneTable&) = delete;
  TombstoneTable& operator=(const TombstoneTable&) = delete;

  // A tombstone stays where it is until it is erased. Returns nullptr if there is none of `id`.
  Tombstone* Find(const ObjectId& id);
  const Tombstone* Find(const ObjectId& id) const;
  // Returns the tombstone that refuses this generation, or nullptr.
  Tombstone* FindRefusing(const ObjectId& id, const Generation& generation);
  bool Refuses(const ObjectId& id, const Generation& generation) const;
  // Returns the tombstone of an id that was not put again, or nullptr.
  const Tombstone* FindDeleted(const ObjectId& id) const;
  // Returns the tombstone with the smallest id above `id`, or nullptr. The nil id comes first.
  const Tombstone* FindAfter(const ObjectId& id) const;

  // The generation that was deleted last, then earlier ones and those that stood by.
  std::vector<Generation> Generations(const Tombstone& tombstone) const;
  const Unconfirmed& UnconfirmedOf(const Tombstone& tombstone) const;
  // When the generation was deleted, up to a second later.
  Instant Since(const Tombstone& tombstone) const {
    return context_.start + absl::Seconds(tombstone.since_s);
  }

  // The generation was deleted just now. A full tombstone forgets its oldest generation, and then
  // refuses all generations of the same creator that were not minted after that one.
  Tombstone& Add(const ObjectId& id, const Generation& generation);
  // The generation was deleted before those that the tombstone has, or stood by. A full tombstone
  // forgets this generation, as Add says. So of generations that nodes register, the newest have to
  // come first.
  Tombstone& AddOlder(const ObjectId& id, const Generation& generation);
  // The id was put again.
  void Revive(const ObjectId& id);

  // `node` was asked in its session `session` to drop the generation. Ignored if the tombstone does
  // not refuse the generation any more. A node confirms in the order in which it was asked, so a
  // later confirmation stands for earlier ones: of each node at most 64 are awaited, the last ones.
  void AwaitConfirm(Tombstone& tombstone, const Generation& generation, const NodeKey& node,
                    uint64_t session);
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

  size_t size() const { return index_.size(); }
  absl::Status CheckInvariants() const;

 private:
  // The place of a tombstone in `blocks_`. A pointer would take twice as many bytes.
  using Place = uint32_t;
  static constexpr Place kNowhere = std::numeric_limits<Place>::max();
  static constexpr Place kBlock = 4096;

  // A tombstone by its id. The first bytes of the id decide nearly every comparison, without a look
  // at the tombstone.
  struct Key {
    uint32_t first = 0;  // of the id, big-endian
    uint32_t second = 0;
    Place place = kNowhere;
  };
  struct Less {
    using is_transparent = void;
    bool operator()(const Key& a, const Key& b) const;
    bool operator()(const Key& a, const ObjectId& b) const;
    bool operator()(const ObjectId& a, const Key& b) const;
    const TombstoneTable* table;
  };
  using Index = absl::btree_set<Key, Less>;

  struct Details {
    // Without `last`.
    std::vector<Generation> older;
    // Of each creator, the generation that was minted last among those without room in `older`. By
    // the deletion of its first one, the oldest first.
    std::vector<Generation> forgotten;
    Unconfirmed unconfirmed;
    bool empty() const { return older.empty() && forgotten.empty() && unconfirmed.empty(); }
  };
  // Through `older` and `younger`.
  struct AgeList {
    Place oldest = kNowhere;
    Place youngest = kNowhere;
  };

  static Key KeyOf(const ObjectId& id, Place place);
  Tombstone& At(Place place) { return blocks_[place / kBlock][place % kBlock]; }
  const Tombstone& At(Place place) const { return blocks_[place / kBlock][place % kBlock]; }
  // kNowhere if there is no tombstone of `id`.
  Place PlaceOf(const ObjectId& id) const;
  Place Allocate();

  Place GetOrCreate(const ObjectId& id);
  void Erase(const ObjectId& id);
  bool TooMany() const { return size() > context_.options.max_tombstones; }

  AgeList& ListOf(const Tombstone& tombstone) { return tombstone.expired ? expired_ : recent_; }
  void Link(AgeList& list, Place place);
  void Unlink(AgeList& list, Place place);
  void RestartAge(Place place);

  const Details* FindDetails(const Tombstone& tombstone) const;
  Details& GetDetails(Tombstone& tombstone);
  void DropEmptyDetails(Tombstone& tombstone);
  bool Contains(const Tombstone& tombstone, const Generation& generation) const;
  // `older`: it was deleted before all others that were forgotten, so it has no room if they are
  // too many.
  static void Forget(const Generation& generation, Details& details, bool older = false);
  // Makes room for one more generation that the node has yet to confirm.
  static void LimitUnconfirmed(const NodeKey& node, Unconfirmed& unconfirmed);

  // Stops waiting for confirmations of a generation.
  void ForgetConfirms(const Generation& generation, Tombstone& tombstone);
  // Stops waiting for what the node was asked in sessions before `session`.
  void ForgetConfirms(const NodeKey& node, uint64_t session);
  // Updates the node's list, and erases the tombstone if it waited for this confirmation only.
  void EndConfirm(const NodeKey& node, Tombstone& tombstone);
  void Unlist(const NodeKey& node, const ObjectId& id);
  absl::Status CheckTombstone(const Tombstone& tombstone) const;
  absl::Status CheckAges(const AgeList& list, bool expired, size_t* count) const;

  CoreContext& context_;
  std::vector<std::unique_ptr<Tombstone[]>> blocks_;
  Place used_ = 0;           // places of `blocks_` that were ever taken
  std::vector<Place> free_;  // those of them that are free
  Index index_{Less{this}};
  AgeList recent_;
  AgeList expired_;
  absl::flat_hash_map<ObjectId, std::unique_ptr<Details>> details_;
  absl::btree_map<NodeKey, absl::flat_hash_set<ObjectId>> unconfirmed_;  // by node
  uint64_t asked_ = 0;                                                   // questions so far
  std::vector<ObjectId> confirmed_;
};

}  // namespace phalanx::directory

#endif  // PHALANX_DIRECTORY_OBJECTS_TOMBSTONE_TABLE_H_
