// The orders to nodes about folds: place, drop, commit.
//
// Owned by ReductionManager. Thread rule: the shard's control loop; no I/O.
#ifndef PHALANX_DIRECTORY_REDUCTIONS_FOLD_DISPATCHER_H_
#define PHALANX_DIRECTORY_REDUCTIONS_FOLD_DISPATCHER_H_

#include <cstdint>

#include "phalanx/object_id.h"
#include "phalanx/v1/directory.pb.h"
#include "src/common/ids/ids.h"
#include "src/directory/reductions/reduction.h"
#include "src/directory/reductions/reduction_descriptors.h"
#include "src/directory/reductions/reduction_parts.h"
#include "src/directory/reductions/source_watcher.h"

namespace phalanx::directory {

class FoldDispatcher {
 public:
  FoldDispatcher(const ReductionParts& parts, SourceWatcher& watcher,
                 ReductionDescriptors& descriptors);

  // Apply what the plan decided. Nothing is sent to a node without a session.
  void Apply(Reduction& reduction, const PlaceFold& effect);
  void Apply(Reduction& reduction, const DropFold& effect);
  void Apply(Reduction& reduction, const CommitFold& effect);

  // The fold `version` on the node has not got one of its inputs: what it has of it need not be
  // computed again if the input moves.
  void NoteArrived(Reduction& reduction, const NodeKey& node, const SlotVersion& version,
                   const v1::FoldReport& m);

  // Sends the order to fold again, to a node that registered the fold.
  void Repeat(const Reduction& reduction, const FoldTask& task, const NodeKey& to);
  // Orders the node to hand the output of the input's node on, under the same version.
  void PlaceRelay(Reduction& reduction, const FoldInput& input, uint64_t size_bytes,
                  const NodeKey& to);
  // The fold is gone from its node, with what it had of its inputs.
  static void ForgetArrived(Reduction& reduction, const Reduction::FoldKey& fold);
  void SendDrop(const NodeKey& to, const ObjectId& target, const SlotVersion& version);
  void SendCommit(Reduction& reduction, const NodeKey& to, const SlotVersion& version);

 private:
  void FillFold(const Reduction& reduction, const FoldTask& task, v1::Fold* out);
  // What the orders of folds and of relays have in common.
  static void FillWork(const Reduction& reduction, const FoldTask& task, v1::Fold* out);
  // How many bytes of the output the fold above has. Less is right, too.
  static uint64_t BeginOf(const Reduction& reduction, const SlotVersion& version);
  void FillSender(const SlotVersion& version, const NodeKey& sender, v1::Fold::Input& out) const;

  CoreContext& context_;
  NodeTable& nodes_;
  Outbox& outbox_;
  SourceWatcher& watcher_;
  ReductionDescriptors& descriptors_;
};

}  // namespace phalanx::directory

#endif  // PHALANX_DIRECTORY_REDUCTIONS_FOLD_DISPATCHER_H_
