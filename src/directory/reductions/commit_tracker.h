// Nodes that were ordered to commit a result and are gone.
//
// Such a node may have sealed the result and answered its own clients before it was fenced, without
// the shard's knowledge: 30 ms without a connection are enough. So a result whose commit was
// ordered is not given up with its node, and nothing else is computed in its place, until the node
// is back and has registered, or another life of it has a session, or a lease has passed.
//
// Owned by ReductionManager; its rules are those of Reduction::commit.
// Thread rule: the shard's control loop; no I/O.
#ifndef PHALANX_DIRECTORY_REDUCTIONS_COMMIT_TRACKER_H_
#define PHALANX_DIRECTORY_REDUCTIONS_COMMIT_TRACKER_H_

#include "phalanx/object_id.h"
#include "src/common/ids/ids.h"
#include "src/directory/reductions/reduction.h"
#include "src/directory/reductions/reduction_catalog.h"
#include "src/directory/reductions/reduction_parts.h"
#include "src/directory/reductions/source_watcher.h"

namespace phalanx::directory {

class CommitTracker {
 public:
  CommitTracker(const ReductionParts& parts, ReductionCatalog& catalog, SourceWatcher& watcher);

  // The node is gone: what it was ordered to commit is awaited for a lease.
  void AwaitCommitted(const NodeKey& node);
  // Returns true if the object is such a result.
  bool AwaitsResult(const Object& object) const;
  // Nodes that are awaited and have no session are given up.
  void StopAwaiting(Reduction& reduction);
  // Another life of the node has a session: the earlier lives are given up.
  void StopAwaitingOtherLives(const NodeKey& node);
  // The process was paused: what is awaited is awaited at least until then.
  void NotePause(Instant until);
  // The node has registered all that it has: a committed result that it did not register is lost.
  void CommittedIsBack(Reduction& reduction, const NodeKey& node);
  // The fold of a node that is back and continues with what it was ordered to commit; nullptr if
  // there is no such fold.
  Reduction::Placed* PlaceAgain(Reduction& reduction, const NodeKey& node,
                                const SlotVersion& version);
  // The node has folded everything but awaits the commit. The plan gets READY only when the root's
  // generation does not stand by: a commit of one that does would leave two results.
  void OnReady(Reduction& reduction, const NodeKey& node, const SlotVersion& version);
  // The committed result is void: no node is awaited with it, and the plan hears which are gone.
  void ForgetCommitted(Reduction& reduction);
  // No node has the committed result: the plan computes it again.
  void PlanAgain(Reduction& reduction);

  // Returns true if the fold is the plan's root.
  bool IsRoot(const ObjectId& target, const SlotVersion& version, const NodeKey& node) const;
  // Returns true if a node has all bytes of this generation, which is adopted or stands by on its
  // creator.
  bool ResultExists(const ObjectId& target, const Generation& generation) const;
  // Returns true if the committed result is the object's generation and may still be sealed.
  bool ResultUndecided(const Reduction& reduction) const;
  // Returns true if what the root announced stands by behind another generation.
  bool RootStandsBy(const Reduction& reduction) const;

 private:
  CoreContext& context_;
  NodeTable& nodes_;
  const RecoveryGate& gate_;
  ObjectTable& objects_;
  ReductionCatalog& catalog_;
  SourceWatcher& watcher_;
};

}  // namespace phalanx::directory

#endif  // PHALANX_DIRECTORY_REDUCTIONS_COMMIT_TRACKER_H_
