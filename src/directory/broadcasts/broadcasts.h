// Which nodes are to have which objects of a shard: the broadcasts that somebody waits for, and
// those that are sticky, which nodes that come later take part in. Pure: effects are values, which
// the shard's core carries out in order.
//
//   Ask ──► Begun
//      └──► Order (the core sends a Fetch) ──► Arrived | Refused | NodeGone ──► Answer
//   NodeJoined ──► Walk, some at a time ──► Order
//
// A broadcast does not move bytes: a node that is ordered wants the object like anybody else, and
// is planned for like anybody else.
//
// The sticky mark of an object is a value of which the last one told counts, by its stamp. Nodes
// that have copies keep it and tell it again (Registered), so that it outlives the shard; "stopped"
// is a mark as well, so that a node that was away cannot bring the broadcast back. Nor can who
// asked for it before: it is told the mark that it has brought about, and asks again with that.
//
// Invariants
//  1. A node is ordered to fetch an object at most once until that has ended. Who refused is not
//     ordered again before its next session, the next generation, or the next Ask.
//  2. At most kMaxWalkFetches orders of a walk are open per node; a walk looks at each object once.
//  3. An answer is given once, when nobody is left to wait for.
//  4. Who has begun and asks again makes nothing sticky by that.
//  5. An object has a record while its mark is not the first one, somebody waits, or both.
//
// Thread rule: no thread, lock, clock or I/O inside. Owned by the core, on its control loop.
#ifndef PHALANX_DIRECTORY_BROADCASTS_BROADCASTS_H_
#define PHALANX_DIRECTORY_BROADCASTS_BROADCASTS_H_

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
#include "src/common/ids.h"

namespace phalanx::directory {

struct BroadcastMark {
  uint64_t stamp = 0;
  absl::btree_set<std::string> nodes;  // or "*"; none: it is not sticky

  bool on() const { return !nodes.empty(); }
  bool Names(const std::string& node) const { return nodes.contains(node) || nodes.contains("*"); }
};

// ---- effects
// Have the node fetch the object, and say Ordered.
struct OrderFetch {
  NodeKey to;
  ObjectId id;
};
// Tell the mark to who has complete copies, or is writing one: `only`, or all.
struct TellMark {
  ObjectId id;
  std::optional<NodeKey> only;
};
// Somebody is waited for. `mark` is what has come of it, if it is sticky.
struct TellBegun {
  NodeKey node;
  uint64_t request_id = 0;
  BroadcastMark mark;
};
// Nobody is left to wait for: `arrived` nodes have it, `refused` (some of them named) have not.
struct AnswerBroadcast {
  NodeKey node;
  uint64_t request_id = 0;
  ObjectId id;
  uint32_t arrived = 0;
  uint32_t refused = 0;
  std::vector<std::string> refusers;
  absl::Status why;  // the broadcast has ended for all
};
using BroadcastEffect = std::variant<OrderFetch, TellMark, TellBegun, AnswerBroadcast>;

class Broadcasts {
 public:
  struct Limits {
    size_t max_sticky = 1 << 16;
    size_t max_askers = 1 << 16;
  };
  // Of open orders per node, those beyond which a walk waits; and what all walks together look at
  // in one turn.
  static constexpr size_t kMaxWalkFetches = 64;
  static constexpr size_t kMaxLookedAt = 1024;
  // Of a mark. Only who does not keep to the protocol tells one near it; greater ones are ignored.
  static constexpr uint64_t kMaxStamp = uint64_t{1} << 61;
  // Whether a node that is there lacks a copy that it could fetch.
  using Lacks = absl::FunctionRef<bool(const ObjectId&, const NodeKey&)>;

  struct Asker {
    NodeKey node;
    uint64_t request_id = 0;
    absl::btree_set<std::string> names;
    bool sticky = false;
    bool begun = false;  // it has been told so, and asks again
  };

  explicit Broadcasts(Limits limits) : limits_(limits) {}

  std::vector<BroadcastEffect> TakeEffects();

  // ---- what is asked for
  // `there` have a complete copy, `missing` are waited for. ResourceExhausted (also for too many
  // names of one object): nothing is begun.
  absl::Status Ask(const ObjectId& id, const Asker& asker, uint32_t there,
                   absl::btree_set<NodeKey> missing, Lacks lacks);
  // An object that is there, or was, and has a mark. What nobody has told yet is stopped as well.
  void Stop(const ObjectId& id);
  // The mark of what is stopped now, and has no record.
  BroadcastMark MintStop() { return BroadcastMark{MintStamp(), {}}; }
  // Who asked waits no longer.
  void Leave(const ObjectId& id, const NodeKey& node, uint64_t request_id);
  // Whatever the object: the shard has told it in an earlier life.
  void HeardOf(uint64_t stamp);
  // The mark of an object that is there, as somebody was told it.
  void Merge(const ObjectId& id, const BroadcastMark& mark, Lacks lacks);
  // A node that has a copy tells the mark that it was told.
  void Registered(const ObjectId& id, const NodeKey& node, const BroadcastMark& mark, Lacks lacks);
  // The object is no more: `why` is the answer to all who wait.
  void End(const ObjectId& id, const absl::Status& why);
  // Another generation is the object's: what was ordered is ordered anew.
  void BeginAnew(const ObjectId& id, Lacks lacks);

  // ---- what nodes do
  void Ordered(const ObjectId& id, const NodeKey& node, PlanId plan);
  void Arrived(const ObjectId& id, const NodeKey& node);
  // Nothing comes of that order.
  void Refused(const ObjectId& id, const NodeKey& node, PlanId plan);
  // Of whatever order; as when the node could not even ask.
  void Refused(const ObjectId& id, const NodeKey& node);
  // What it had when it was ordered it has no more.
  void OrderAgain(const ObjectId& id, const NodeKey& node, Lacks lacks);
  // It has registered all it has: it is to be looked at what it lacks.
  void NodeJoined(const NodeKey& node, const std::string& name);
  // Its session has ended and another begins: what it was told, and what it asked, is void.
  void SessionBegins(const NodeKey& node);
  void NodeGone(const NodeKey& node);
  // It will be gone: waited for only with what it gets already.
  void NodeLeaves(const NodeKey& node, Lacks gets);

  // ---- time
  // Some of what is left to look at.
  void Walk(Lacks lacks);
  bool walking() const { return !walking_.empty(); }

  // ---- looking
  // Null: as if never sticky.
  const BroadcastMark* MarkOf(const ObjectId& id) const;
  bool RefusedBy(const ObjectId& id, const NodeKey& node) const;
  bool IsOrdered(const ObjectId& id, const NodeKey& node) const;
  size_t sticky() const { return sticky_; }
  size_t askers() const { return askers_; }
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
    BroadcastMark mark;
    // In this life of the shard: no holder that is away knows of a greater one.
    bool minted = false;
    std::vector<Waiting> waiting;
    absl::btree_map<NodeKey, PlanId> ordered;
    absl::btree_set<NodeKey> refused;

    bool idle() const { return waiting.empty() && !mark.on(); }
  };
  using Records = absl::btree_map<ObjectId, Record>;
  struct Node {
    std::string name;
    bool joined = false;
    // Where it is ordered, waited for, has refused or waits itself.
    absl::btree_set<ObjectId> part_in;
    size_t open = 0;                 // orders
    std::optional<ObjectId> walked;  // up to this one, while it is walked
  };

  bool IsFor(const Record& record, const NodeKey& key) const;
  void Order(const ObjectId& id, Record& record, const NodeKey& key, Lacks lacks);
  // All nodes that it is for.
  void OrderAll(const ObjectId& id, Record& record, Lacks lacks);
  void EndOrder(Record& record, const NodeKey& key);
  void SetMark(Record& record, BroadcastMark mark, bool minted);
  // Greater than any of an earlier life of the shard of which one was told, also for another
  // object; so that who comes later with one of those does not win.
  uint64_t MintStamp();
  void Refuse(Record& record, const NodeKey& key);
  // Its order and what it asked are void; with `gone` it is not waited for either.
  void Strike(const NodeKey& key, bool gone);
  // Answers who has nobody left to wait for; forgets the record if nothing keeps it.
  void Settle(Records::iterator at);
  void LeaveIfDone(const ObjectId& id, const Record& record, const NodeKey& key);
  void WalkOn(const NodeKey& key, Node& node, size_t& left, Lacks lacks);

  const Limits limits_;
  Records records_;
  absl::btree_set<ObjectId> active_;  // of these, those that are not idle
  absl::btree_map<NodeKey, Node> nodes_;
  absl::btree_set<NodeKey> walking_;  // those that may be walked on now
  uint64_t last_stamp_ = 0;           // minted here, or told
  bool minted_ = false;               // here, after the greatest that was told
  size_t sticky_ = 0;
  size_t askers_ = 0;
  uint64_t examined_ = 0;
  uint64_t orders_ = 0;
  uint64_t refusals_ = 0;
  std::vector<BroadcastEffect> effects_;
};

}  // namespace phalanx::directory

#endif  // PHALANX_DIRECTORY_BROADCASTS_BROADCASTS_H_
