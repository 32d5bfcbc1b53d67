// What a shard knows of one object. Plain values, kept by ObjectTable; the fields of wants, plans
// and measurements are written by PullScheduler.
//
//   an object's generation:
//     none ──Adopt──► writing ──CompleteCopy──► sealed ──last complete copy gone──► lost
//       ▲                │                        │  ▲                               │
//       └───── void ─────┘◄──────── deleted ──────┘  └──── a holder comes back ──────┘
//
//   a node's copy:
//     receiving ──pull complete──► complete        writing ──Seal──► complete
//     (none) ──Deliver──► delivered ──the node reports it──► complete
//     any, when its node begins a new session ──► stale ──registered──► as registered
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
#include "phalanx/object_id.h"
#include "src/common/ids.h"
#include "src/common/instant.h"
#include "src/directory/broadcast_tree.h"
#include "src/directory/broadcasts/broadcasts.h"
#include "src/directory/objects/inline_cache.h"
#include "src/directory/validate.h"

namespace phalanx::directory {

// How a copy arrived, for the tools. Made when the copy's first pull is planned.
struct PullRecord {
  NodeKey sender;
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

// A node's copy of the adopted generation.
struct Copy {
  bool complete = false;
  bool primary = false;
  // Created on this node and not sealed: its writer makes it grow, not a pull.
  bool writer = false;
  // Sent in a Deliver, which the node may have no memory to keep: does not count when another copy
  // is evicted.
  bool unconfirmed = false;
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
};

// A node that waits for the object, or pulls it.
struct Want {
  uint64_t order = 0;
  uint64_t number = 0;  // the node's number of the request; repeated in each Assign
  bool keep = false;    // as a primary copy
  // Assigned to a sender: the receiver has feeds in the tree, or pulls from `outside_sender`.
  bool pulling = false;
  // A sender that has not registered yet.
  NodeKey outside_sender;
  // Registered in a session whose registration has not ended: not planned.
  bool held = false;
  int withdrawals = 0;
  Instant not_before;
  // Its node has no memory for this generation: not planned while the generation is the object's.
  Generation no_room_for;
  // The node that made this object is preferred for the first pull, and waited for until
  // `affinity_until`.
  ObjectId affinity_object;
  std::optional<Instant> affinity_until;
};

// A generation that is not the adopted one, on the node that created it.
struct Attempt {
  Generation generation;
  NodeKey node;
  ObjectInfo info;
  bool complete = false;
  // Its node was sent SUPERSEDED; kept until the node has dropped it.
  bool superseded = false;
  bool stale = false;
  // Its node registered it as adopted in an earlier life of the shard: the generation that is
  // adopted now may turn out to be deleted.
  bool adopted = false;
  BroadcastMark policy = {};  // as its node registered it
};

struct Object {
  explicit Object(const ObjectId& object_id) : id(object_id) {}

  bool has_writer() const { return writers > 0; }
  // Returns true if the node holds a complete copy and has reported so in this session.
  bool HasConfirmedCopy(const NodeKey& node) const {
    const auto copy = copies.find(node);
    return copy != copies.end() && copy->second.complete && !copy->second.unconfirmed &&
           !copy->second.stale;
  }
  // Returns true if the want's node has no memory for the object's generation.
  bool LacksRoom(const Want& want) const { return adopted && want.no_room_for == generation; }

  const ObjectId id;

  // ---- written by ObjectTable
  // `generation` and `info` are those of the adopted generation.
  bool adopted = false;
  // A complete copy existed: from then on the generation can be lost, but not become void.
  bool sealed = false;
  // Adopted from absence in the first lease after a start: gives way to a generation that was
  // adopted before the start.
  bool tentative = false;
  // The creator is notified of the adoption when it is no longer tentative.
  bool verdict_held = false;
  // The waiting nodes were notified of the loss.
  bool loss_reported = false;
  std::string last_holder;  // the name of the node whose complete copy went last
  // An owned object that is not referenced is not freed before: a reduction may need it again.
  Instant gc_grace_until;
  // Plans from here on belong to this adoption. A generation can be given up and return with a
  // fenced node; reports under earlier plans are void.
  PlanId first_plan = 0;
  Generation generation;
  ObjectInfo info;
  absl::btree_map<NodeKey, Copy> copies;
  int complete_copies = 0;
  int writers = 0;  // copies that are being written
  std::vector<Attempt> attempts;
  uint32_t conflicts = 0;
  // The last source of bytes is gone: receivers that it fed, which may have received every byte and
  // not reported it. Until they have, or a lease has passed (`void_at`), the generation is neither
  // void nor lost.
  absl::btree_set<NodeKey> unreported_receivers;
  Instant void_at = Instant::Infinite();
  Instant timer = Instant::Infinite();

  // ---- written by InlineCache
  InlineCache::Entry inline_entry;

  // ---- written by PullScheduler
  absl::btree_map<NodeKey, Want> wants;
  // Those of `wants` that are not pulling, oldest first.
  absl::btree_set<std::pair<uint64_t, NodeKey>> waiting;
  std::unique_ptr<BroadcastTree> tree;  // while there is something to plan

  // ---- written by DrainManager
  // The node that was asked to fetch the sole copy of a draining node.
  NodeKey drain_target;
};

}  // namespace phalanx::directory

#endif  // PHALANX_DIRECTORY_OBJECTS_OBJECT_H_
