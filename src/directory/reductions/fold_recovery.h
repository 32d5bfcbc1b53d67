// Folds that nodes register after a restart of the shard, kept until it has learned which
// reductions run: then each fold is restored into its reduction's plan, or dropped.
//
// Owned by ReductionManager. Thread rule: the shard's control loop; no I/O.
#ifndef PHALANX_DIRECTORY_REDUCTIONS_FOLD_RECOVERY_H_
#define PHALANX_DIRECTORY_REDUCTIONS_FOLD_RECOVERY_H_

#include <cstddef>
#include <vector>

#include "absl/container/btree_map.h"
#include "absl/status/status.h"
#include "phalanx/object_id.h"
#include "phalanx/v1/directory.pb.h"
#include "src/common/ids/ids.h"
#include "src/directory/reductions/commit_tracker.h"
#include "src/directory/reductions/fold_dispatcher.h"
#include "src/directory/reductions/reduction.h"
#include "src/directory/reductions/reduction_catalog.h"
#include "src/directory/reductions/reduction_descriptors.h"
#include "src/directory/reductions/reduction_parts.h"

namespace phalanx::directory {

// Implemented by ObjectRequests.
class DeletedResultListener {
 public:
  virtual ~DeletedResultListener() = default;
  // A node holds this generation of the target, which was deleted.
  virtual void OnDeletedGeneration(const ObjectId& id, const Generation& generation) = 0;
};

class FoldRecovery {
 public:
  FoldRecovery(const ReductionParts& parts, ReductionCatalog& catalog,
               ReductionDescriptors& descriptors, FoldDispatcher& dispatcher,
               CommitTracker& commits, DeletedResultListener& listener);

  // InvalidArgument names the field; nothing is changed then.
  absl::Status OnRegisterFold(Node& node, const v1::RegisterFold& m);
  void Forget(const NodeKey& node);
  // Drops the folds of reductions that were deleted. Called before anything that is registered is
  // adopted from absence.
  void RefuseDeleted();
  // The gate has opened: hands the folds to their reductions.
  void HandOut();
  // Restores the folds that were handed to the reduction into its plan, which has not begun.
  static void Restore(Reduction& reduction);
  // The plan has placed the registered fold: the root's generation and its READY count from here
  // on.
  void Continue(Reduction& reduction, const NodeKey& node, const v1::RegisterFold& m);

  absl::Status CheckInvariants() const;

 private:
  // Drops the fold, and what it made, if its reduction was deleted. Returns false if it was not.
  bool Refuse(const NodeKey& node, const v1::RegisterFold& m);
  // A reduction of which no requester knew the id takes it from its folds.
  void SetIds();

  CoreContext& context_;
  RecoveryGate& gate_;
  const TombstoneTable& tombstones_;
  ReductionCatalog& catalog_;
  ReductionDescriptors& descriptors_;
  FoldDispatcher& dispatcher_;
  CommitTracker& commits_;
  DeletedResultListener& listener_;
  absl::btree_map<NodeKey, std::vector<v1::RegisterFold>> folds_;
  size_t size_ = 0;  // each fold with its sources, one more for itself
};

}  // namespace phalanx::directory

#endif  // PHALANX_DIRECTORY_REDUCTIONS_FOLD_RECOVERY_H_
