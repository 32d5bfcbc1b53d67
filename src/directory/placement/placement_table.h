// Which nodes are to have which objects of a shard: broadcasts that a node waits for, and sticky
// broadcasts, which nodes that join later take part in. Pure: effects are values, which
// PlacementManager applies in order.
//
//   Begin ──► ConfirmStart
//        └──► OrderFetch (the node is sent a Fetch) ──► Arrived | Refused | NodeDown ──► answer
//   NodeJoined ──► Walk, a bounded number of objects per turn ──► OrderFetch
//
// A broadcast does not move bytes: a node that is ordered to fetch an object wants it like any
// other node, and PullScheduler plans its pull.
//
// Of several placement policies of one object the one with the greatest stamp is valid. Nodes with
// copies store the policy and register it (Registered), so that the policy outlives the shard.
// "Stopped" is a policy as well, so that a node that was away cannot start the broadcast again. The
// requester cannot either: it is sent the policy that its request made, and repeats its request
// with that policy.
//
// Invariants (CheckInvariants)
//  1. A node is ordered to fetch an object at most once at a time. A node that refused is not
//     ordered again before its next session, the next generation, or the next Begin.
//  2. At most kMaxWalkFetches orders of a walk are open per node; a walk examines each object once.
//  3. A request is answered once, when no node is missing.
//  4. A request that already started and is repeated makes nothing sticky.
//  5. An object has a record while it has a policy, a request waits, or both.
//
// Owned by DirectoryCore. Thread rule: the shard's control loop; no clock, no I/O.
#ifndef PHALANX_DIRECTORY_PLACEMENT_PLACEMENT_TABLE_H_
#define PHALANX_DIRECTORY_PLACEMENT_PLACEMENT_TABLE_H_

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/container/btree_map.h"
#include "absl/container/btree_set.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "phalanx/object_id.h"
#include "src/common/ids/ids.h"
#include "src/directory/placement/placement_policy.h"

namespace phalanx::directory {

// ---- effects
// The node is sent a Fetch, and Ordered is called.
struct OrderFetch {
  NodeKey to;
  ObjectId id;
};
// The policy is sent to the nodes that have or write a complete copy: to all of them, or to `only`.
struct AnnouncePolicy {
  ObjectId id;
  std::optional<NodeKey> only;
};
// The request has started and waits. `policy`: the policy that a sticky request made.
struct ConfirmStart {
  NodeKey node;
  uint64_t request_id = 0;
  PlacementPolicy policy;
};
// No node is missing: `arrived` nodes have the object, `refused` nodes do not; some of these are
// named.
struct AnswerBroadcast {
  NodeKey node;
  uint64_t request_id = 0;
  ObjectId id;
  uint32_t arrived = 0;
  uint32_t refused = 0;
  std::vector<std::string> refusers;
  absl::Status why;  // the error if the object ended
};
// So many primary copies of the object are wanted from now on (CopyKeeper); 0: no number of them.
struct WantCopies {
  ObjectId id;
  uint32_t copies = 0;
  absl::Status why;  // the error if the object ended
};
using BroadcastEffect =
    std::variant<OrderFetch, AnnouncePolicy, ConfirmStart, AnswerBroadcast, WantCopies>;

class PlacementTable {
 public:
  struct Limits {
    size_t max_sticky = 1 << 16;
    size_t max_requests = 1 << 16;
  };
  // A walk pauses while its node has this many open orders.
  static constexpr size_t kMaxWalkFetches = 64;
  // All walks together examine at most this many objects per turn.
  static constexpr size_t kMaxExamined = 1024;
  // Returns true if the node has a session, lacks a copy and could fetch one.
  using Lacks = absl::FunctionRef<bool(const ObjectId&, const NodeKey&)>;

  struct Requester {
    NodeKey node;
    uint64_t request_id = 0;
    absl::btree_set<std::string> names;
    bool sticky = false;
    bool already_started = false;  // the node was sent ConfirmStart and repeats its request
  };

  explicit PlacementTable(Limits limits) : limits_(limits) {}

  std::vector<BroadcastEffect> TakeEffects();

  // ---- requests and policies
  // `arrived` of the named nodes have a complete copy, `missing` are waited for. Returns
  // ResourceExhausted, and starts nothing, beyond a limit or with too many names of one object.
  absl::Status Begin(const ObjectId& id, const Requester& requester, uint32_t arrived,
                     absl::btree_set<NodeKey> missing, Lacks lacks);
  // The policy of the object wants so many copies from now on; CopyKeeper places them. If the
  // request already started, its policy was merged, and nothing changes.
  void SetCopies(const ObjectId& id, const Requester& requester, uint32_t copies);
  // The broadcast is not sticky any more; the number of copies stays. Works on an object without a
  // known policy, too: a node that is away can still register one.
  void Stop(const ObjectId& id);
  // Returns the policy, with this number of copies, of an object that is stopped now and has no
  // record.
  PlacementPolicy MintStop(uint32_t copies) { return PlacementPolicy{MintStamp(), {}, copies}; }
  // The requester does not wait any more.
  void Cancel(const ObjectId& id, const NodeKey& node, uint64_t request_id);
  // An earlier life of the shard has used the stamp, for any object.
  void NoteStamp(uint64_t stamp);
  // A node knows this policy of an adopted object.
  void Merge(const ObjectId& id, const PlacementPolicy& policy, Lacks lacks);
  // A node registered a copy with the policy that it knows.
  void Registered(const ObjectId& id, const NodeKey& node, const PlacementPolicy& policy,
                  Lacks lacks);
  // The object has ended: every waiting request is answered with the error `why`.
  void End(const ObjectId& id, const absl::Status& why);
  // Another generation was adopted: the nodes that were ordered to fetch the object are ordered
  // again.
  void OnNewGeneration(const ObjectId& id, Lacks lacks);

  // ---- events of nodes
  // The Fetch was sent under `plan`.
  void Ordered(const ObjectId& id, const NodeKey& node, PlanId plan);
  void Arrived(const ObjectId& id, const NodeKey& node);
  // The node will not fetch the object under `plan`. Ignored if another order is open.
  void Refused(const ObjectId& id, const NodeKey& node, PlanId plan);
  // The same for any order, as when the shard refused the node's Want.
  void Refused(const ObjectId& id, const NodeKey& node);
  // The node has evicted the copy that it had when it was ordered.
  void OrderAgain(const ObjectId& id, const NodeKey& node, Lacks lacks);
  // The node has registered every copy: a walk finds the sticky objects that the node lacks.
  void NodeJoined(const NodeKey& node, const std::string& name);
  // The node begins another session: its orders and requests are void.
  void SessionBegins(const NodeKey& node);
  void NodeDown(const NodeKey& node);
  // The node is draining: it is waited for only where `receives` returns true.
  void NodeDrains(const NodeKey& node, Lacks receives);

  // ---- time
  // Continues the walks.
  void Walk(Lacks lacks);
  bool walking() const { return !walking_.empty(); }

  // ---- looking
  // Returns nullptr if the object has no policy.
  const PlacementPolicy* PolicyOf(const ObjectId& id) const;
  bool RefusedBy(const ObjectId& id, const NodeKey& node) const;
  bool IsOrdered(const ObjectId& id, const NodeKey& node) const;
  size_t sticky() const { return sticky_; }
  size_t requests() const { return requests_; }
  uint64_t examined() const { return examined_; }
  uint64_t orders() const { return orders_; }
  uint64_t refusals() const { return refusals_; }
  absl::Status CheckInvariants() const;

 private:
  struct Waiting {
    NodeKey node;
    uint64_t request_id = 0;
    absl::btree_set<NodeKey> missing = {};
    uint32_t arrived = 0;
    uint32_t refused = 0;
    std::vector<std::string> refusers = {};
  };
  struct Record {
    PlacementPolicy policy;
    // The policy was made in this life of the shard: no node that is away knows a newer one.
    bool minted = false;
    std::vector<Waiting> waiting;
    absl::btree_map<NodeKey, PlanId> ordered;
    absl::btree_set<NodeKey> refused;

    bool idle() const { return waiting.empty() && !policy.sticky(); }
  };
  using Records = absl::btree_map<ObjectId, Record>;
  struct Node {
    std::string name;
    bool joined = false;
    // Objects that the node is ordered to fetch, is missing from, has refused or waits for itself.
    absl::btree_set<ObjectId> linked;
    size_t open = 0;  // orders
    // The last object that the node's walk examined; nullopt without a walk.
    std::optional<ObjectId> walked_up_to;
  };

  bool IsFor(const Record& record, const NodeKey& key) const;
  void Order(const ObjectId& id, Record& record, const NodeKey& key, Lacks lacks);
  // Orders every node for which the broadcast is.
  void OrderAll(const ObjectId& id, Record& record, Lacks lacks);
  void EndOrder(Record& record, const NodeKey& key);
  void SetPolicy(const ObjectId& id, Record& record, PlacementPolicy policy, bool minted);
  // Returns a stamp greater than every known stamp of an earlier life of the shard, also for other
  // objects, so that a node that registers later with one of those stamps does not win.
  uint64_t MintStamp();
  void Refuse(Record& record, const NodeKey& key);
  // The node's orders and requests are void. `down`: other requests do not wait for it either.
  void EndParts(const NodeKey& key, bool down);
  // Answers the requests without missing nodes; erases the record if nothing needs it.
  void AnswerCompleted(Records::iterator at);
  void UnlinkIfUnused(const ObjectId& id, const Record& record, const NodeKey& key);
  void ContinueWalk(const NodeKey& key, Node& node, size_t& left, Lacks lacks);

  const Limits limits_;
  Records records_;
  absl::btree_set<ObjectId> active_;  // the records that are not idle
  absl::btree_map<NodeKey, Node> nodes_;
  absl::btree_set<NodeKey> walking_;  // the nodes whose walk can continue now
  uint64_t last_stamp_ = 0;           // the greatest stamp that was minted or noted
  bool minted_ = false;               // last_stamp_ was minted here
  size_t sticky_ = 0;
  size_t requests_ = 0;
  uint64_t examined_ = 0;
  uint64_t orders_ = 0;
  uint64_t refusals_ = 0;
  std::vector<BroadcastEffect> effects_;
};

}  // namespace phalanx::directory

#endif  // PHALANX_DIRECTORY_PLACEMENT_PLACEMENT_TABLE_H_
