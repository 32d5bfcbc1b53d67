// What a shard knows of one object: values, owned by ObjectTable. Each section of Object names the
// component that writes it.
//
//   ObjectPhase, of an object's adopted generation:
//     kAbsent ──Adopt──► kWriting ──CompleteCopy──► kSealed ──no copy is left──► kLost
//        ▲                  │                        │  ▲                         │
//        ├────── void ──────┘◄─────── deleted ───────┤  └── a copy is registered ──┤
//        └───────────────────────────────────────────┴──────── deleted ────────────┘
//
//   CopyState, of a node's copy of the adopted generation:
//     (no copy) ──Assign──► kReceiving ──the pull completes──► kComplete
//     (no copy) ──Create──► kWriting ────Seal────────────────► kComplete
//     (no copy) ──Deliver─► kDelivered ──the node confirms───► kComplete
//     any state, when the node begins a new session ──► stale ──registered──► as registered
//
//   WantState, of a node that waits for the object:
//     kHeld ──the registration of its session ends──► kWaiting ──Assign──► kPulling
//                                                        ▲                    │
//                                                        └────── Requeue ─────┘
#ifndef PHALANX_DIRECTORY_OBJECTS_OBJECT_H_
#define PHALANX_DIRECTORY_OBJECTS_OBJECT_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/btree_map.h"
#include "absl/container/btree_set.h"
#include "absl/container/inlined_vector.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "phalanx/object_id.h"
#include "src/common/ids/ids.h"
#include "src/common/time/instant.h"
#include "src/directory/core/node_table.h"
#include "src/directory/core/validate.h"
#include "src/directory/objects/inline_cache.h"
#include "src/directory/placement/placement_policy.h"
#include "src/directory/pulls/relay_tree.h"

namespace phalanx::directory {

// How a copy arrived, for the tools. Made when the copy's first pull is planned.
struct PullRecord {
  NodeKey sender;         // of the first slice
  NodeKey second_sender;  // of the other half of the slices, if that is another pull
  PlanId plan = 0;
  double bytes_per_second = 0;
  uint64_t bytes_received = 0;
  uint64_t starved_ns = 0;  // since `started`, as the receiver reported last
  Instant started;
  Instant ended = Instant::Infinite();
  uint32_t repairs = 0;
  // The receiver has reported how the pull ended. Until then the copy may be complete without the
  // shard's knowledge.
  bool reported = false;
};

enum class CopyState {
  kReceiving,  // a pull makes the copy grow; also the remainder of a pull that has ended
  kWriting,    // created on this node and not sealed: its writer makes the copy grow
  // Complete as far as the shard knows: sent in a Deliver, which the node may have no memory to
  // keep. Does not count when another copy is evicted.
  kDelivered,
  kComplete,
};

// A node's copy of the adopted generation.
struct Copy {
  CopyState state() const { return state_; }
  // Includes copies that are known from a Deliver only.
  bool complete() const {
    return state_ == CopyState::kComplete || state_ == CopyState::kDelivered;
  }
  bool writing() const { return state_ == CopyState::kWriting; }
  bool unconfirmed() const { return state_ == CopyState::kDelivered; }

  bool primary = false;
  // Known from a session that has ended; removed unless the new session registers it.
  bool stale = false;
  // Registered in this session: its pull may have a plan of an earlier session.
  bool registered = false;
  // The sender that the node named when it registered; until the registration ends.
  NodeKey registered_sender;
  // The stamp of the placement policy that it was registered with: the node knows that policy.
  uint64_t registered_stamp = 0;
  absl::InlinedVector<uint64_t, 1> watermarks;
  std::unique_ptr<PullRecord> pull;

 private:
  friend class CopyMap;
  CopyState state_ = CopyState::kReceiving;
};

// The copies of one object by node, with the numbers of complete copies and of those being written.
// Only ObjectTable adds, removes and changes copies.
class CopyMap {
 public:
  using Map = absl::btree_map<NodeKey, Copy>;

  int complete() const { return complete_; }
  int writing() const { return writing_; }
  bool empty() const { return copies_.empty(); }
  size_t size() const { return copies_.size(); }
  bool contains(const NodeKey& node) const { return copies_.contains(node); }
  Map::iterator find(const NodeKey& node) { return copies_.find(node); }
  Map::const_iterator find(const NodeKey& node) const { return copies_.find(node); }
  Copy& at(const NodeKey& node) { return copies_.at(node); }
  const Copy& at(const NodeKey& node) const { return copies_.at(node); }
  Map::iterator begin() { return copies_.begin(); }
  Map::iterator end() { return copies_.end(); }
  Map::const_iterator begin() const { return copies_.begin(); }
  Map::const_iterator end() const { return copies_.end(); }

 private:
  friend class ObjectTable;

  // Returns the node's copy, and whether it is new.
  std::pair<Copy&, bool> Add(const NodeKey& node);
  void SetState(Copy& copy, CopyState state);
  void Remove(Map::iterator copy);

  Map copies_;
  int complete_ = 0;
  int writing_ = 0;
};

enum class WantState {
  kHeld,     // registered in a session whose registration has not ended: not planned
  kWaiting,  // for a sender, of one half at least
  // Assigned: the receiver has feeds (edges of the relay tree, relay_tree.h), or pulls from an
  // outside sender, which has not registered at this shard.
  kPulling,
};

// A node that waits for the object, or pulls it.
struct Want {
  uint64_t order = 0;
  uint64_t number = 0;  // the node's number of the request; repeated in each Assign
  bool keep = false;    // as a primary copy
  WantState state = WantState::kWaiting;
  // The sender of a pull that was registered before the sender was.
  NodeKey outside_sender;
  int withdrawals = 0;
  Instant not_before;
  // Its node has no memory for this generation: not planned while the generation is the object's.
  Generation no_room_for;
  // The node that made this object is preferred for the first pull, and waited for until
  // `near_until`.
  ObjectId near_object;
  std::optional<Instant> near_until;
  // The node waits until then for others that ask at the same time (NotePatience).
  std::optional<Instant> yields_until;
};

// A generation that is not the adopted one, on the node that created it. Written by Standbys.
struct Standby {
  Generation generation;
  NodeKey node;
  ObjectInfo info;
  bool complete = false;
  // The node was sent SUPERSEDED; kept until the node has dropped it.
  bool superseded = false;
  // Known from a session that has ended.
  bool stale = false;
  // The node registered it as adopted in an earlier life of the shard: the generation that is
  // adopted now may turn out to be deleted.
  bool was_adopted = false;
  PlacementPolicy policy = {};  // as the node registered it
  // If it was adopted: when its time to live has passed. That of any other one begins when the
  // generation is adopted.
  Instant expires = Instant::Infinite();
};

// A copy as a node registers it.
struct Registration {
  Generation generation;
  ObjectInfo info;
  bool primary = false;
  bool adopted = false;
  bool complete = false;
  bool writing = false;
  NodeKey sender;
  bool in_parts = false;
  PlacementPolicy policy = {};
};

// The last source of bytes is gone, and receivers that it fed may have received every byte without
// having reported it. Until they have, or the deadline has passed, the generation is neither void
// nor lost.
struct FinalReports {
  absl::btree_set<NodeKey> awaited;
  Instant deadline = Instant::Infinite();

  void Clear() { *this = FinalReports(); }
};

enum class ObjectPhase {
  kAbsent,   // no generation is adopted
  kWriting,  // a complete copy never existed: without a source, the generation is void
  kSealed,   // a complete copy existed: without one, the generation is lost
  kLost,     // sealed, no copy is left, and the waiting nodes were notified
};

struct Object {
  Object(const ObjectId& object_id, Instant now) : id(object_id), since(now) {}

  ObjectPhase phase() const { return phase_; }
  bool adopted() const { return phase_ != ObjectPhase::kAbsent; }
  bool sealed() const { return phase_ == ObjectPhase::kSealed || phase_ == ObjectPhase::kLost; }
  bool IsAdopted(const Generation& other) const { return adopted() && generation == other; }
  // Returns true if the node holds a complete copy and has reported so in this session.
  bool HasConfirmedCopy(const NodeKey& node) const;
  // Returns true if a complete copy exists on a connected node other than `except` that stays.
  bool HasOtherCompleteCopy(const NodeTable& nodes, const NodeKey& except) const;
  // Returns a node other than `except` whose complete copy is known from a Deliver only, or
  // nullptr.
  Node* FindUnconfirmed(NodeTable& nodes, const NodeKey& except) const;
  // Returns true if the node can be named as a sender of the copy. `learning`: the shard learns.
  bool Offers(const Node& node, const Copy& copy, bool learning) const;
  // Returns true if the want's node has no memory for the object's generation.
  bool LacksRoom(const Want& want) const { return adopted() && want.no_room_for == generation; }
  // Returns true if the want names a near object, and the object is not so small that the opening
  // of the pull takes most of the time: then any idle sender is as good.
  bool NamesNear(const Want& want, uint64_t least_bytes) const {
    return !want.near_object.nil() && info.size_bytes >= least_bytes;
  }
  // The first name that a message has for the id is kept, whatever becomes of the generation.
  void LearnName(const ObjectName& name) {
    if (info.name.empty()) info.name = name;
  }
  // Returns nullptr if the generation does not stand by on the node.
  Standby* FindStandby(const Generation& standby_generation, const NodeKey& node);
  void EraseStandby(const Generation& standby_generation, const NodeKey& node);

  const ObjectId id;

  // ---- written by ObjectTable
  // `generation` and `info` are those of the adopted generation; info.name is the object's.
  Generation generation;
  ObjectInfo info;
  // When the generation was adopted or registered here; before that, when the object was first
  // wanted.
  Instant since;
  // Adopted from absence in the first lease after a start: gives way to a generation that was
  // adopted before the start.
  bool provisional = false;
  // The creator is notified of the adoption when it is no longer provisional.
  bool verdict_held = false;
  std::string last_holder;  // the name of the node whose complete copy went last
  // An owned object that is not referenced is not freed before: a reduction may need it again.
  Instant gc_grace_until;
  // Plans from here on belong to this adoption. A generation can be given up and return with a
  // fenced node; reports under earlier plans are void.
  PlanId first_plan = 0;
  CopyMap copies;
  FinalReports final_reports;
  Instant timer = Instant::Infinite();

  // ---- written by Standbys
  std::vector<Standby> standbys;
  uint32_t conflicts = 0;  // standby generations of another size than the adopted one

  // ---- written by InlineCache
  InlineCache::Entry inline_entry;

  // ---- written by PullScheduler
  absl::btree_map<NodeKey, Want> wants;
  // The wants that are not pulling, oldest first.
  absl::btree_set<std::pair<uint64_t, NodeKey>> waiting;
  RelayTrees trees;  // while there is something to plan

  // ---- written by DrainManager
  // The node that was asked to fetch the sole copy of a draining node.
  NodeKey drain_target;

 private:
  friend class ObjectTable;
  // Replaces `info`, but keeps a name that is known.
  void SetInfo(ObjectInfo other);

  ObjectPhase phase_ = ObjectPhase::kAbsent;
};

// The error of an invariant of the object that is broken.
absl::Status Broken(const Object& object, absl::string_view what);

}  // namespace phalanx::directory

#endif  // PHALANX_DIRECTORY_OBJECTS_OBJECT_H_
