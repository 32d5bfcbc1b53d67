// Wants, plans and reports: from "this node wants the object" to "its copy is complete".
//
//   Want ──► waiting ──Serve──► inline bytes are sent (Deliver)
//              ▲  │        └──► a sender is assigned (Assign) ──► pulling ──PullReport──► complete
//              │  └── waits for a near node, for memory, for its session; a slow node for fast ones
//              └───── Requeue: the pull failed, its sender left, or a better sender was found
//
// Plans are made by PullPlanner over the tree of each object. PullScheduler applies them: it
// writes the section of Object that object.h gives it, the pulls of a Node, and the progress that
// receivers report into copies.
//
// Invariants (CheckInvariants)
//  1. A want waits (or its session is still registering: kHeld) or pulls; a pull has a feed in the
//     tree or an outside sender, one that has not registered.
//  2. A node that can be served does not wait, except while Want::yields_until has not come: every
//     change is followed by Plan.
//  3. A node neither wants an object of which it holds a complete copy, nor pulls one for which it
//     has no memory.
//  4. At most options.max_waiting wants are open.
//
// Owned by DirectoryCore. Thread rule: the shard's control loop; no I/O, replays from its inputs.
#ifndef PHALANX_DIRECTORY_PULLS_PULL_SCHEDULER_H_
#define PHALANX_DIRECTORY_PULLS_PULL_SCHEDULER_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "phalanx/object_id.h"
#include "phalanx/v1/directory.pb.h"
#include "src/common/ids/ids.h"
#include "src/common/time/instant.h"
#include "src/directory/objects/object_table.h"
#include "src/directory/placement/placement_table.h"
#include "src/directory/pulls/cut_prober.h"
#include "src/directory/pulls/pull_planner.h"
#include "src/directory/pulls/pull_routes.h"
#include "src/directory/pulls/relay_tree.h"

namespace phalanx::directory {

// What a PullScheduler reports upwards. Implemented by DrainManager.
class PullListener {
 public:
  virtual ~PullListener() = default;
  // The node will not fetch the object: it has no memory for it, or has withdrawn its Want.
  virtual void OnRefused(Object& object, const NodeKey& node) = 0;
  // The node does not carry out the Fetch of this plan. It may have no Want.
  virtual void OnOrderRefused(const ObjectId& id, const NodeKey& node, PlanId plan) = 0;
  // The node has a complete copy, as it reports under `plan`.
  virtual void OnReported(Object& object, const NodeKey& node, PlanId plan, bool primary) = 0;
  // A node uses less memory than before.
  virtual void OnRoomFreed() = 0;
};

class PullScheduler final : public ObjectPulls {
 public:
  // What the scheduler stands on; all of them outlive it.
  struct Parts {
    CoreContext& context;
    NodeTable& nodes;
    Outbox& outbox;
    const RecoveryGate& gate;
    ObjectTable& objects;
    TombstoneTable& tombstones;
    const FailureTable& failures;
    InlineCache& inline_cache;
    PlacementTable& placements;
  };

  PullScheduler(const Parts& parts, PullListener& listener);

  // ---- messages of nodes. InvalidArgument names the field; nothing is changed then.
  absl::Status OnWant(Node& node, const v1::Want& m);
  absl::Status OnUnwant(Node& node, const v1::Unwant& m);
  absl::Status OnRegisterWant(Node& node, const v1::RegisterWant& m);
  absl::Status OnPullReport(Node& node, const v1::PullReport& m);
  absl::Status OnProgress(Node& node, const v1::Progress& m);

  // ---- ObjectPulls
  void Plan(Object& object) override;
  void OnCopyComplete(Object& object, const NodeKey& node) override;
  void OnCopyRemoved(Object& object, const NodeKey& node) override;
  void OnCopyRegistered(Object& object, const NodeKey& node, bool connected) override;
  void SetConnected(Object& object, const NodeKey& node, bool connected) override;
  void Postpone(Object& object, const NodeKey& node) override;
  void Requeue(Object& object, const NodeKey& key) override { RequeueIn(object, key, nullptr); }
  void EndWant(Object& object, const NodeKey& key) override;
  bool AdmitRegisteredWant(Object& object, Node& node) override;
  void AdmitOutsidePulls(Object& object, const NodeKey& sender) override;
  void RequeueOutsidePulls(Object& object) override;
  void RefuseWants(Object& object) override;
  void DropTree(Object& object) override;
  void DropTreeIfIdle(Object& object) override;

  void Tick() { planner_.Tick(context_.now); }

  const PullPlanner& planner() const { return planner_; }
  const PullRoutes& routes() const { return routes_; }
  // Reductions share its links and its failed pairs.
  PullPlanner& planner() { return planner_; }
  CutProber& prober() { return prober_; }
  size_t waiting_wants() const { return waiting_wants_; }
  absl::Status CheckInvariants() const;

 private:
  // One pass over the nodes that wait for an object.
  struct Round {
    // The nodes that wait and can be served, the current one among them; counted when first needed.
    std::optional<size_t> left;
    bool awaits_near_node = false;  // a node waits for its near node
    // The nodes that reach no sender. Planned once more after the others, which they may reach.
    std::vector<NodeKey> isolated;
    bool last = false;  // this is that time
  };

  // Answers the want if that is possible at once, else keeps it.
  void AddWant(Object& object, Node& node, const Want& asked);
  // Removes a copy that only a pull had made: without the pull, its receivers would wait for it.
  void RemovePartialCopy(Object& object, const NodeKey& key);

  // ---- serving
  bool MayBeServed(const Object& object, const NodeKey& key) const;
  void PlanRound(Object& object, Round& round);
  // The nodes that wait and can be served, in the order in which they are planned.
  std::vector<NodeKey> Ready(const Object& object) const;
  // Returns true if the shard or a node can send the object to some node.
  bool HasSender(Object& object);
  // Sends the bytes or assigns a sender. Returns false if no node can be served.
  bool Serve(Object& object, Node& node, Want& want, Round& round);
  void Deliver(Object& object, Node& node, bool keep);
  // Returns true if the cached bytes are sent without comparing with a sender.
  bool DeliversAtOnce(const Object& object) const;
  // Returns true if sending the cached bytes is faster than the sender in `choice`.
  bool PrefersInline(const Object& object, const Node& receiver,
                     const PullPlanner::Choice& choice) const;
  // Returns true while the want waits for its near node to receive some of the object.
  bool AwaitsNearNode(const Object& object, const NodeKey& key, Want& want);
  // Decides, once for each want, how long the node waits for others that ask at the same time: a
  // slow one lets faster ones be placed first, and in two trees nodes are placed together.
  void NotePatience(const Object& object, const Node& node, Want& want) const;
  // Returns true if the node, all senders of which have failed it, is passed over: until the others
  // are planned, or until its relay can send.
  bool AwaitsRelay(Object& object, const NodeKey& key, Round& round);
  // The node pulls what `tree` is of.
  void Assign(Object& object, RelayTree& tree, Node& node, Want& want,
              const PullPlanner::Choice& choice);

  // ---- two trees, each of half the slices (pull_halves.cc)
  // Returns true if the nodes that pull the object, and those that are ready to, are to do it in
  // two trees.
  bool SplitPays(const Object& object, const std::vector<NodeKey>& ready) const;
  // Ends every pull, and makes two trees; or one of all slices, which stays so.
  void Replant(Object& object, bool in_halves);
  // Serves the nodes that wait, when they have for long enough that pairs are placed together.
  // Returns false if a node finds no sender for one half.
  bool PlanHalves(Object& object);

  // ---- the tree
  RelayTree& Tree(Object& object);
  RelayTree::Member* Join(const Object& object, RelayTree& tree, const NodeKey& key,
                          const Copy& copy) const;
  void BeginPulling(Object& object, Node& node, Want& want);
  // The receiver's pulls end, or that in `only`; `completed`: because it has every byte.
  void EndFeeds(Object& object, const NodeKey& receiver, bool completed = false,
                const RelayTree* only = nullptr);
  // Ends the pulls, or that in `only`, and plans them again.
  void RequeueIn(Object& object, const NodeKey& key, const RelayTree* only);
  // Also the receivers of those that are known not to reach `unreached`, if it is valid.
  void RequeueReceivers(Object& object, RelayTree& tree, const RelayTree::Member& sender,
                        const NodeKey& unreached = NodeKey());
  // Renews the ways around cut pairs, and assigns relays to the receivers that wait for them.
  void FollowRoutes(Object& object);
  void ServeAgain(Object& object, const std::vector<NodeKey>& nodes);
  // Two nodes cannot reach each other: if only descendants of the receiver are left to pull from,
  // they are requeued and the receiver can pull from them.
  void SwapWithDescendants(Object& object, const NodeKey& receiver, const NodeKey& sender);
  // Returns true if `sender` was listed and feeds the want in the tree now.
  bool LinkRegisteredPull(Object& object, Node& node, Want& want, const NodeKey& sender);

  // ---- reports (pull_reports.cc)
  void RefuseCompletion(Node& node, const ObjectId& id, const Generation& generation);
  void MeasurePull(Object& object, const NodeKey& receiver, const v1::PullReport& m);
  void PullFailed(Object& object, Node& node, Want& want, const v1::PullReport& m);
  void NotePullProgress(Node& node, const v1::Progress::Pull& pull);
  // Assigns a better sender, if there is one, to a receiver whose sender is slow, overloaded or
  // disconnected.
  void MoveToBetterSender(Object& object, RelayTree& tree, RelayTree::Member* receiver);
  void NoteUnconnected(Object& object, RelayTree& tree, RelayTree::Member* receiver);

  CoreContext& context_;
  NodeTable& nodes_;
  Outbox& outbox_;
  const RecoveryGate& gate_;
  ObjectTable& objects_;
  TombstoneTable& tombstones_;
  const FailureTable& failures_;
  InlineCache& inline_cache_;
  PlacementTable& placements_;
  PullListener& listener_;
  PullPlanner planner_;
  CutProber prober_;
  PullRoutes routes_;
  size_t open_wants_ = 0;
  size_t waiting_wants_ = 0;
};

}  // namespace phalanx::directory

#endif  // PHALANX_DIRECTORY_PULLS_PULL_SCHEDULER_H_
