// Draining nodes: if a draining node has the only complete copy of an object, a node that stays
// fetches the object before the draining node leaves.
//
//   sole copies of a draining node:  queued ──► fetching (another node was asked) ──► gone
//                                      ▲  └──► stuck (no node has room) ──┐
//                                      └── room was freed, a timer fired ─┘
//
// Invariants (CheckInvariants)
//  1. At most kMaxFetches objects of one draining node are being fetched.
//  2. One node at a time is asked to fetch an object (Object::drain_target): a node that stays, and
//     only while a draining node waits for that. A node that refused is not asked again before a
//     pause, which doubles with every refusal.
//  3. Node::draining is set exactly for the nodes that drain here.
//  4. An object is in one list of a draining node, and only if that node has a complete copy and no
//     node that stays has one.
//
// Owned by DirectoryCore. Thread rule: the shard's control loop; no I/O, replays from its inputs.
#ifndef PHALANX_DIRECTORY_PLACEMENT_DRAIN_MANAGER_H_
#define PHALANX_DIRECTORY_PLACEMENT_DRAIN_MANAGER_H_

#include <cstddef>
#include <optional>

#include "absl/container/btree_map.h"
#include "absl/container/btree_set.h"
#include "absl/status/status.h"
#include "phalanx/object_id.h"
#include "phalanx/v1/directory.pb.h"
#include "src/common/ids/ids.h"
#include "src/directory/objects/object_table.h"
#include "src/directory/placement/refusals.h"
#include "src/directory/pulls/pull_scheduler.h"

namespace phalanx::directory {

class DrainManager final : public ObjectDrains, public PullListener {
 public:
  DrainManager(CoreContext& context, NodeTable& nodes, Outbox& outbox, ObjectTable& objects)
      : context_(context), nodes_(nodes), outbox_(outbox), objects_(objects) {}

  // The node asks to leave, or a tool asks for its drain. Returns false if it is draining already.
  bool OnDrain(Node& node);
  // How many objects of a draining node no node that stays has.
  v1::DrainStatus StatusOf(const NodeKey& node) const;
  void NodeDown(const NodeKey& node);
  // A new session of a draining node begins: it drains only if it asks again.
  void SessionBegins(Node& node);
  // Room may have been freed on a node: objects that no node had room for are tried again.
  void RetryAll();
  // Asks for more fetches, and notifies each draining node when its number of objects has changed.
  void ReportProgress();

  // ---- ObjectDrains
  void OnCopiesChanged(Object& object) override;
  void OnNodeLeft(Object& object, const NodeKey& node) override;
  void OnTimer(const Object& object) override;
  void OnReleased(const Object& object) override;

  // ---- PullListener
  void OnRefused(Object& object, const NodeKey& node) override;
  void OnOrderRefused(const ObjectId&, const NodeKey&, PlanId) override {}
  void OnReported(Object&, const NodeKey&, PlanId, bool) override {}
  void OnRoomFreed() override;

  absl::Status CheckInvariants() const;

 private:
  // The objects of which one draining node has the only complete copy.
  struct SoleCopies {
    absl::btree_set<ObjectId> fetching;
    absl::btree_set<ObjectId> queued;
    absl::btree_set<ObjectId> stuck;
    std::optional<size_t> reported;  // how many there were in the last DrainStatus

    void Erase(const ObjectId& id);
    size_t lists_with(const ObjectId& id) const {
      return fetching.count(id) + queued.count(id) + stuck.count(id);
    }
    size_t size() const { return fetching.size() + queued.size() + stuck.size(); }
  };
  // Also in the relay trees of the node's objects, and in what counts as a copy that stays.
  void SetDraining(Node& node, bool draining);
  // Returns true if a node that stays has a complete copy that it has confirmed.
  bool StaysElsewhere(const Object& object) const;
  void StartFetches(SoleCopies& sole);
  // The node with the most room that stays and has not refused the object lately, or nullptr.
  Node* ChooseTarget(const Object& object);
  bool HasRefused(const Object& object, const NodeKey& key) const;
  v1::DrainStatus StatusOf(const SoleCopies& leaving) const;
  // Sets the object's timer to the time at which a node that refused it can be asked again.
  void AwaitRefusers(Object& object);

  CoreContext& context_;
  NodeTable& nodes_;
  Outbox& outbox_;
  ObjectTable& objects_;
  absl::btree_map<NodeKey, SoleCopies> draining_;
  absl::btree_map<ObjectId, Refusals> refusals_;
};

}  // namespace phalanx::directory

#endif  // PHALANX_DIRECTORY_PLACEMENT_DRAIN_MANAGER_H_
