// Keeps primary copies of objects on several hosts: of each object for which a client has asked for
// a number of copies, that many hosts have one, or all hosts if there are fewer.
//
//   WantCopies ──► Want        ┌──────────────────────────────────────────────┐
//   a copy came or went ──► changed ──► examined ──► enough hosts: waiting requests are answered
//                              ▲            ├──► too few: short ──► ordered (Fetch keep)
//   a node joined, room,       │            │                          │ arrived, refused, node
//   down a pause ended ─────────────┴── short ◄──┘◄─────────────────────────┘
//                                           └──► too many: released (Fetch release)
//
// A host is what HostOf says of its nodes. A copy counts if it is complete, primary, confirmed by
// its node and on a node that stays. A node that is receiving or writing a primary copy, or that
// registers, is waited for, so that no copy is made in its stead. While the object has no complete
// copy, nothing is ordered.
//
// Invariants (CheckInvariants)
//  1. A node has at most one order of an object at a time: to keep a copy, or to release one.
//  2. At most kMaxOrders orders to keep copies are open; all others wait in `short_`.
//  3. Copies are released only while so many other connected hosts have one that enough are left.
//  4. A request waits only for an object with a wanted number.
//  5. `loads_` is the sum of the open orders to keep copies.
//
// Owned by DirectoryCore. Thread rule: the shard's control loop; no I/O, replays from its inputs.
#ifndef PHALANX_DIRECTORY_PLACEMENT_COPY_KEEPER_H_
#define PHALANX_DIRECTORY_PLACEMENT_COPY_KEEPER_H_

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "absl/container/btree_map.h"
#include "absl/container/btree_set.h"
#include "absl/status/status.h"
#include "phalanx/object_id.h"
#include "src/common/ids/ids.h"
#include "src/common/time/instant.h"
#include "src/directory/objects/object_table.h"
#include "src/directory/placement/refusals.h"

namespace phalanx::directory {

// Returns the number of hosts on which a node that stays has a confirmed, complete primary copy.
uint32_t HostsWithPrimary(const Object& object, const NodeTable& nodes);

class CopyKeeper {
 public:
  // What the keeper stands on; all of them outlive it.
  struct Parts {
    CoreContext& context;
    NodeTable& nodes;
    Outbox& outbox;
    const RecoveryGate& gate;
    ObjectTable& objects;
  };
  // Orders to keep a copy that are open at a time, over all objects.
  static constexpr size_t kMaxOrders = 256;
  // Objects that one turn examines, and nodes that it compares for one of them.
  static constexpr size_t kMaxExamined = 1024;
  static constexpr size_t kMaxCompared = 64;

  explicit CopyKeeper(const Parts& parts) : parts_(parts) {}

  // ---- what is wanted
  // So many hosts are to have a primary copy; 0: no number is wanted any more, and waiting requests
  // end with `why`.
  void Want(const ObjectId& id, uint32_t copies, const absl::Status& why);
  // The request is answered by a BroadcastReply when the copies are there. Returns
  // ResourceExhausted, and waits for nothing, if options.max_broadcasts requests wait already.
  absl::Status Await(const ObjectId& id, const NodeKey& node, uint64_t request_id);
  void Cancel(const ObjectId& id, const NodeKey& node, uint64_t request_id);

  // ---- events
  // Copies of the object came or went, or one became primary.
  void OnCopiesChanged(const ObjectId& id);
  // The node has a complete copy, as it reports under `plan`.
  void OnReported(Object& object, const NodeKey& node, PlanId plan, bool primary);
  // The node asked to evict its copy: an order that crossed the question has had no effect.
  void OnEvictAsked(const ObjectId& id, const NodeKey& node);
  // The node has no memory for the object, or does not want it.
  void OnRefused(const ObjectId& id, const NodeKey& node);
  // The node does not carry out the Fetch of this plan, or an earlier one.
  void OnOrderRefused(const ObjectId& id, const NodeKey& node, PlanId plan);
  // Orders to the node, its refusals and its requests are void. Also when it is down.
  void SessionBegins(const NodeKey& node);
  // A node joined, connected, drains or is down: objects that lack copies are tried again.
  void RetryAll();
  // A node has more memory: the same, for the objects for which a node waits for memory. A node
  // that has refused is asked again after its pause.
  void OnRoomFreed();
  void EndLearning();

  // ---- time
  void Tick();
  // Examines what has changed, and orders, releases and answers.
  void RunPending();
  Instant NextDeadline() const;

  // ---- looking
  // Objects that lack copies.
  size_t short_of_copies() const { return short_.size(); }
  // Those of them for which the next turns compare the nodes.
  size_t to_compare() const { return to_order_.size(); }
  uint64_t orders() const { return ordered_; }
  uint64_t releases() const { return released_; }
  size_t requests() const { return requests_; }
  absl::Status CheckInvariants() const;

 private:
  struct Waiting {
    NodeKey node;
    uint64_t request_id = 0;
  };
  struct OpenOrder {
    PlanId plan = 0;
    NodeKey from;  // the object's creator, which has a copy most likely
    uint64_t bytes = 0;
  };
  // Bytes that open orders to keep copies move to a node, and away from it.
  struct Load {
    uint64_t in = 0;
    uint64_t out = 0;
    friend auto operator<=>(const Load&, const Load&) = default;
  };
  struct Record {
    uint32_t wanted = 0;
    absl::btree_map<NodeKey, OpenOrder> keeping;  // open orders to keep a copy
    absl::btree_map<NodeKey, PlanId> releasing;   // open orders to release one
    Refusals refusals;
    Instant retry = Instant::Infinite();
    std::vector<Waiting> waiting;
    bool had_enough = false;  // for Defect::kCopyNotMadeAgain
  };
  using Records = absl::btree_map<ObjectId, Record>;
  // The hosts of one object.
  struct Hosts {
    absl::btree_set<uint64_t> there;     // that have a primary copy
    absl::btree_set<uint64_t> expected;  // that will probably have one without an order
    bool covers(uint64_t host) const { return there.contains(host) || expected.contains(host); }
    size_t covered() const;
  };

  Hosts Count(const Object& object, const Record& record) const;
  void Examine(const ObjectId& id, Record& record);
  // The object lacks no copy, or is to be examined again.
  void EraseShort(const ObjectId& id);
  // No copy can be made any more: the orders would keep others from being sent.
  void EndOrders(const ObjectId& id, Record& record);
  void OrderShort();
  // Orders what the object lacks. Returns false if it still lacks a copy for want of a node.
  bool Order(Object& object, Record& record);
  void ReleaseSurplus(Object& object, Record& record);
  void Release(Object& object, Record& record, const NodeKey& node);
  // A node that was sent a primary copy by a Deliver and has no order: it began to fetch the object
  // under an order of an earlier session. An order makes it confirm the copy. Or nullptr.
  Node* Unconfirmed(const Object& object, const Record& record) const;
  // A node on another host than the object's copies, or nullptr; one with room that open orders
  // load least. Of nodes that receive as much, one that sends little comes first: a node that has
  // yet to write an object gets its share before, since it can get no copy of its own object. So if
  // each node writes one at about the same time, each gets as many copies as it sends.
  Node* ChooseNode(const Object& object, const Record& record, const Hosts& hosts) const;
  Load LoadOf(const NodeKey& node) const;
  void AddLoad(const NodeKey& to, const OpenOrder& order);
  void RemoveLoad(const NodeKey& to, const OpenOrder& order);
  // The same, of the nodes that have a part in the object already.
  Node* ChooseHolder(const Object& object, const Record& record, const Hosts& hosts) const;
  bool MayBeOrdered(const Object& object, const Record& record, const Hosts& hosts,
                    const Node& node) const;
  bool HasRefused(const Object& object, const Record& record, const NodeKey& node) const;
  // Answers the requests if nothing more can come, or enough is there.
  void Answer(const ObjectId& id, const Object& object, Record& record);
  void SendReply(const Waiting& waiting, const ObjectId& id, uint32_t hosts,
                 const absl::Status& status);
  // Sets the time at which a node that refused can be ordered again.
  void SetRetry(const ObjectId& id, Record& record);
  bool EndKeeping(const ObjectId& id, Record& record, const NodeKey& node);
  void UnlinkIfUnused(const ObjectId& id, const Record& record, const NodeKey& node);

  const Parts parts_;
  Records records_;
  absl::btree_set<ObjectId> changed_;   // to be examined
  absl::btree_set<ObjectId> short_;     // lack a copy for which no node has been ordered
  absl::btree_set<ObjectId> to_order_;  // those of `short_` for which nodes have not been compared
  // Those of `short_` for which a node waited for memory when nodes were compared last.
  absl::btree_set<ObjectId> lack_room_;
  absl::btree_set<std::pair<Instant, ObjectId>> retries_;
  // The objects in which a node has an order or a request, or that it has refused.
  absl::btree_map<NodeKey, absl::btree_set<ObjectId>> linked_;
  size_t open_ = 0;                       // orders to keep a copy
  absl::btree_map<NodeKey, Load> loads_;  // of these; without nodes that have none
  size_t requests_ = 0;
  uint64_t ordered_ = 0;
  uint64_t released_ = 0;
};

}  // namespace phalanx::directory

#endif  // PHALANX_DIRECTORY_PLACEMENT_COPY_KEEPER_H_
