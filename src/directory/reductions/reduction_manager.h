// The reductions whose targets belong to this shard: which nodes request them, what nodes report of
// their folds, and what the plans decide.
//
//   ReduceRequest ──► Begin or join ──► collecting ──► ring or plan ──► folds on nodes
//                          │                                              │ READY
//   answered at once ◄─────┘ (ended, deleted, other arguments)            ▼
//   ReduceReply ◄── End ◄── the result is complete ◄── AnnounceCreate ◄── commit
//
// Its parts each own one concern, and are private to it:
//   ReductionCatalog       running and ended reductions, ids, timers
//   SourceWatcher          the sources, on this shard and on others
//   ReductionDescriptors   joining, extending, and what nodes keep for a restarted shard
//   FoldDispatcher         orders to nodes
//   FoldPaces              nodes that turn out to be slow, or have stopped
//   FoldRoutes             ways around nodes that cannot reach each other
//   CommitTracker          committed results whose nodes are gone
//   RingDriver             rings of rotated slices, tried before the tree
//   FoldRecovery           folds that nodes register after a restart
// The shape of a tree, and which source takes which place in it, is ReducePlan's.
//
// Invariants (CheckInvariants)
//  1. A fold is placed on a node with a session, and the plan, the ring or a route knows it.
//  2. Every source of this shard that a running reduction has is watched; every watched source has
//  a watcher.
//  3. Sources and requests are counted, and bounded by the options.
//
// Owned by DirectoryCore. Thread rule: the shard's control loop; no I/O, replays from its inputs.
#ifndef PHALANX_DIRECTORY_REDUCTIONS_REDUCTION_MANAGER_H_
#define PHALANX_DIRECTORY_REDUCTIONS_REDUCTION_MANAGER_H_

#include <cstddef>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "phalanx/object_id.h"
#include "phalanx/v1/directory.pb.h"
#include "src/common/ids/ids.h"
#include "src/common/time/instant.h"
#include "src/directory/objects/failure_table.h"
#include "src/directory/objects/hold_sets.h"
#include "src/directory/reductions/commit_tracker.h"
#include "src/directory/reductions/fold_dispatcher.h"
#include "src/directory/reductions/fold_paces.h"
#include "src/directory/reductions/fold_recovery.h"
#include "src/directory/reductions/fold_routes.h"
#include "src/directory/reductions/reduction.h"
#include "src/directory/reductions/reduction_catalog.h"
#include "src/directory/reductions/reduction_descriptors.h"
#include "src/directory/reductions/reduction_parts.h"
#include "src/directory/reductions/ring_driver.h"
#include "src/directory/reductions/source_watcher.h"

namespace phalanx::directory {

class ReductionManager final : public ObjectReductions {
 public:
  ReductionManager(const ReductionParts& parts, DeletedResultListener& listener);

  // ---- messages of nodes. InvalidArgument names the field; nothing is changed then.
  absl::Status OnReduce(Node& node, const v1::ReduceRequest& m);
  absl::Status OnExtend(Node& node, const v1::ExtendRequest& m) {
    return descriptors_.OnExtend(node, m);
  }
  absl::Status OnFoldReport(Node& node, const v1::FoldReport& m);
  absl::Status OnRegisterFold(Node& node, const v1::RegisterFold& m) {
    return fold_recovery_.OnRegisterFold(node, m);
  }
  absl::Status OnWatchSource(Node& node, const v1::WatchSource& m) {
    return watcher_.OnWatchSource(node, m);
  }
  absl::Status OnSourceState(Node& node, const v1::SourceState& m) {
    return watcher_.OnSourceState(node, m);
  }
  // A fold's node announces its result. REQUIRES: m.has_version()
  absl::Status OnCreate(Node& node, const v1::AnnounceCreate& m);

  // ---- nodes and time
  // A node has its first session here. It takes no node: any reduction with sources of other shards
  // can have this one among its holders, so all of them look at their holders again.
  void NodeAdded();
  void NodeDown(const NodeKey& node);
  // Another life of the node has a session.
  void NodeRestarted(const NodeKey& node) { commits_.StopAwaitingOtherLives(node); }
  // The node is about to go down: what it was ordered to commit is awaited. REQUIRES: called before
  // ObjectTable::NodeDown, which would decide that a committed result without a copy is lost.
  void BeforeNodeDown(const NodeKey& node) { commits_.AwaitCommitted(node); }
  // A node's session has resumed. It takes no node: a reduction without a watch proxy chooses one
  // among all nodes.
  void NodeConnected();
  void SessionBegins(const NodeKey& node);
  void SessionRegistered(const NodeKey& node);
  // The gate is about to open, and has opened.
  void BeforeLearningEnds() { fold_recovery_.RefuseDeleted(); }
  void NoteLearned() { watcher_.EndLearning(); }
  void EndLearning();
  void Tick();
  void NotePause(Instant until) { commits_.NotePause(until); }
  Instant NextDeadline() const { return catalog_.NextDeadline(); }
  // Applies what the plans decided since the last call, and what follows from it.
  void RunPending();

  // ---- ObjectReductions
  void OnObjectChanged(const ObjectId& id) override;
  bool IsReducing(const ObjectId& id) const override { return catalog_.Find(id) != nullptr; }
  std::optional<Generation> PlannedResult(const ObjectId& id) const override;
  bool OnUnheld(const ObjectId& id) override;
  bool AwaitsResult(const Object& object) const override { return commits_.AwaitsResult(object); }

  // ---- deletes and references
  struct Cancelled {
    bool was_running = false;
    ReductionId id;        // the reduction's
    Generation announced;  // what its root has announced, if anything
  };
  // A client deletes the target: its reduction, if one runs, ends with NotFound. Before the object
  // is deleted.
  Cancelled CancelDeleted(const ObjectId& target);
  // The object was deleted, by a client, for want of references or by a tombstone, and with it a
  // result that the reduction can still await. The reduction continues.
  void OnResultDeleted(const ObjectId& target);
  // A node registers a tombstone of the reduction `id`, or a shard learns otherwise of its
  // deletion: the reduction ends although it can have been requested again before the tombstone was
  // known.
  void EndIfDeleted(const ObjectId& target, const ReductionId& id);
  // The result is to stay. Returns false if no reduction of the target runs.
  bool ClearOwned(const ObjectId& target) override;
  bool Watches(const ObjectId& source) const override { return watcher_.Watches(source); }

  const ReductionCatalog& catalog() const { return catalog_; }
  absl::Status CheckInvariants() const;

 private:
  // ---- requests
  // Returns nullptr if there are too many reductions or sources.
  Reduction* Begin(const ObjectId& target, ReduceSpec spec, const NodeKey& root,
                   const ReductionId& id);
  // The requester is answered when the reduction ends, or sent a forget then.
  void AddRequester(Reduction& reduction, const Reduction::Requester& requester,
                    const v1::ReduceRequest& m, bool first);
  void ForgetRequesters(Reduction& reduction, const NodeKey& node);
  void AnswerReduce(const ObjectId& target, const Reduction::Requester& requester,
                    const absl::Status& status);
  // A request that is refused before its reduction began leaves no outcome.
  enum class Outcome { kRemembered, kForgotten };
  // Answers every requester and erases the reduction; its folds are dropped.
  void End(Reduction& reduction, const absl::Status& status,
           Outcome outcome = Outcome::kRemembered);
  // Returns true if the reduction is open, and no client is left that can close it.
  bool Abandoned(const Reduction& reduction) const;
  void EndAbandoned(Reduction& reduction);

  // ---- reductions that have ended (reduction_outcomes.cc). Each returns nullopt if the request is
  // for the running reduction, or one can begin.
  std::optional<absl::Status> AnswerOfEarlier(const Reduction::Requester& requester,
                                              const ObjectId& target, const ReduceSpec& spec,
                                              bool again);
  // For a retry that carries no reduction id.
  std::optional<absl::Status> AnswerOfUnnumbered(const Reduction::Requester& requester,
                                                 const ObjectId& target, const ReduceSpec& spec,
                                                 bool again);
  // Why a reduction of the target cannot begin, or how the last one ended. `again`: a retry that
  // carries no reduction id, so a Delete ends it.
  std::optional<absl::Status> AnswerBeforeBegin(const ObjectId& target, const ReduceSpec& spec,
                                                bool again);
  // Of an open reduction that has ended and does not run again.
  absl::Status ResultOrLoss(const ObjectId& target, const ReduceSpec& spec, bool again);
  // The running reduction ends if the one that is named began later.
  void EndIfEarlier(const ObjectId& target, const ReductionId& id, const ReduceSpec& spec);
  void Remember(const Reduction& reduction, const absl::Status& status);
  // What differs between the request and the result that exists; empty if nothing does.
  std::string DifferenceFrom(const ReduceSpec& asked, const Object& result) const;

  // ---- plans
  void OnTimer(Reduction& reduction);
  void Run(Reduction& reduction);
  // Returns the error that ends the reduction at once, if there is one.
  absl::Status BeginPlan(Reduction& reduction);
  // The node keeps trying; what only another plan or another sender can mend is reported on.
  void OnFoldFailed(Reduction& reduction, const NodeKey& node, Reduction::Placed& placed,
                    const SlotVersion& version, const v1::FoldReport& m);
  // The node has no room for the fold, or has lost it.
  void OnFoldGone(Reduction& reduction, const NodeKey& node, Reduction::Placed& placed,
                  const SlotVersion& version);
  // The node of a fold does not hold one of its own sources.
  void NoteAbsent(Reduction& reduction, const FoldTask& task, const NodeKey& node, size_t input);
  absl::Status OnRootCreate(Node& node, const ObjectId& id, Announcement announced);
  // A new root's generation replaces one of which no node can have every byte.
  void ReplaceRoot(Object& object);

  CoreContext& context_;
  NodeTable& nodes_;
  Outbox& outbox_;
  RecoveryGate& gate_;
  ObjectTable& objects_;
  TombstoneTable& tombstones_;
  FailureTable& failures_;
  const HoldSets& holds_;
  const LinkModel& links_;
  ReductionCatalog catalog_;
  RingDriver rings_;
  SourceWatcher watcher_;
  ReductionDescriptors descriptors_;
  FoldDispatcher dispatcher_;
  FoldRoutes routes_;
  FoldPaces paces_;
  CommitTracker commits_;
  FoldRecovery fold_recovery_;
};

}  // namespace phalanx::directory

#endif  // PHALANX_DIRECTORY_REDUCTIONS_REDUCTION_MANAGER_H_
