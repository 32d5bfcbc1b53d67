// The descriptions of running reductions: which node joins, adds sources, and keeps a description
// for a shard that restarts.
//
// The list of an open reduction only grows at its end and is closed once, so whatever any node
// keeps is a part of one list. After a restart the parts that nodes send are put together by their
// places, in any order. A gap that is left when learning ends means that sources are lost; the
// reduction then ends with DataLoss rather than without them.
//
// Owned by ReductionManager. Thread rule: the shard's control loop; no I/O.
#ifndef PHALANX_DIRECTORY_REDUCTIONS_REDUCTION_DESCRIPTORS_H_
#define PHALANX_DIRECTORY_REDUCTIONS_REDUCTION_DESCRIPTORS_H_

#include <cstddef>
#include <string>

#include "absl/status/status.h"
#include "phalanx/object_id.h"
#include "phalanx/v1/directory.pb.h"
#include "src/common/ids/ids.h"
#include "src/directory/reductions/reduction.h"
#include "src/directory/reductions/reduction_catalog.h"
#include "src/directory/reductions/reduction_parts.h"
#include "src/directory/reductions/source_watcher.h"

namespace phalanx::directory {

class ReductionDescriptors {
 public:
  ReductionDescriptors(const ReductionParts& parts, ReductionCatalog& catalog,
                       SourceWatcher& watcher);

  // InvalidArgument names the field; nothing is changed then. Waits at the gate while the reduction
  // may still be registered.
  absl::Status OnExtend(Node& node, const v1::ExtendRequest& m);
  // The gate has opened: answers the requests that waited.
  void EndLearning();

  // Returns false if `asked` means a different reduction or contradicts what is known of this one.
  bool Join(Reduction& reduction, const ReduceSpec& asked, const v1::Reduction& m);
  // Returns true if a part of the list is missing.
  static bool HasGap(const Reduction& reduction);
  // Returns true if a replica's description has sources that the list does not.
  static bool LacksSources(const Reduction& reduction, const ReduceSpec& kept);
  // The reduction has this id: every node that has its description is notified.
  void SetId(Reduction& reduction, const ReductionId& id);

  // The node, which knows `known` sources of an open reduction, is sent each extension.
  void Inform(Reduction& reduction, const NodeKey& node, size_t known);
  // Sends the description with the sources from place `first` on.
  void SendPart(Reduction& reduction, const NodeKey& node, size_t first);
  // The node keeps the description, unless it requested the reduction itself or enough nodes do.
  void SendToReplica(Reduction& reduction, const NodeKey& node);
  void SendForget(const NodeKey& node, const ObjectId& target, const ReductionId& id);
  static void ForgetReplica(Reduction& reduction, const NodeKey& node);

 private:
  void AnswerExtend(const NodeKey& node, const v1::ExtendRequest& m);
  absl::Status Extend(Reduction& reduction, const NodeKey& node, const v1::ExtendRequest& m);
  // Returns true if the node's extension was carried out before its reduction ended.
  bool TakenBefore(const NodeKey& node, const v1::ExtendRequest& m, const ObjectId& target,
                   const ReductionId& id);
  // Appends the parts that have no gap before them. Returns false if they contradict the list.
  bool TakeParts(Reduction& reduction);
  // Returns how the last reduction of the target failed, as the end of a sentence; empty if it did
  // not, or is not remembered.
  std::string HowItEnded(const ObjectId& target) const;
  void FillKeep(const Reduction& reduction, size_t first, v1::KeepReduction* out) const;

  CoreContext& context_;
  NodeTable& nodes_;
  Outbox& outbox_;
  RecoveryGate& gate_;
  ObjectTable& objects_;
  ReductionCatalog& catalog_;
  SourceWatcher& watcher_;
};

}  // namespace phalanx::directory

#endif  // PHALANX_DIRECTORY_REDUCTIONS_REDUCTION_DESCRIPTORS_H_
