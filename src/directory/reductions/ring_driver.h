// Rings of rotated slices, for reductions whose result every requester wants: a ring is tried
// before the tree's plan begins, and given up for it.
//
//   wanted ──all sources ready──► placed ──every member ready──► committed ──► sealed
//     └── too late, too few ──► the plan      └── a member or a source is lost, or two neighbours
//                                                 cannot reach each other ──► broken ──► the plan
//
// Owned by ReductionManager; writes `ring*` of a Reduction. Thread rule: the shard's control loop;
// no I/O.
#ifndef PHALANX_DIRECTORY_REDUCTIONS_RING_DRIVER_H_
#define PHALANX_DIRECTORY_REDUCTIONS_RING_DRIVER_H_

#include <cstddef>
#include <string>

#include "absl/status/status.h"
#include "phalanx/object_id.h"
#include "phalanx/v1/directory.pb.h"
#include "src/common/ids/ids.h"
#include "src/directory/reductions/commit_tracker.h"
#include "src/directory/reductions/fold_dispatcher.h"
#include "src/directory/reductions/reduction.h"
#include "src/directory/reductions/reduction_catalog.h"
#include "src/directory/reductions/reduction_parts.h"

namespace phalanx::directory {

class RingDriver final : public RingListener {
 public:
  RingDriver(const ReductionParts& parts, ReductionCatalog& catalog, SourceWatcher& watcher,
             ReductionDescriptors& descriptors, FoldDispatcher& dispatcher, CommitTracker& commits);

  // Returns true if a ring computes the result or is waited for: the plan does not begin.
  bool Run(Reduction& reduction);
  bool IsMember(const ObjectId& target, const SlotVersion& version, const NodeKey& node) const;
  // A member announces that it begins to write the target. With the first announcement all members
  // are listed as writers, so that no node sends the target to one that makes it itself.
  absl::Status OnCreate(Node& node, const ObjectId& target, Announcement announced);
  void OnReport(Reduction& reduction, const NodeKey& node, Reduction::Placed& placed,
                const v1::FoldReport& m);
  // The node is down, or has begun a new session: a ring does not outlive a member's session.
  void MemberLost(Reduction& reduction, const NodeKey& node);
  void OnSourceLost(Reduction& reduction) override { Break(reduction); }
  // Drops the folds of the members. A result that was not committed is void on every node.
  void TakeBack(Reduction& reduction);

 private:
  // Returns true if there is a ring now, or may be one soon.
  bool Await(Reduction& reduction);
  bool Begin(Reduction& reduction);
  void PlaceMember(Reduction& reduction, size_t place, const std::string& reduced_from);
  // Returns true if the ring's generation is the object's.
  bool IsObject(const Reduction& reduction) const;
  // Returns true if a pull that failed can be tried again.
  bool MayRecover(Reduction& reduction, const NodeKey& node, Reduction::Placed& placed,
                  const v1::FoldReport& m);
  // Members that have sealed a committed result keep it and report so; the others drop what they
  // have.
  void Break(Reduction& reduction);
  void DropMembers(Reduction& reduction);

  CoreContext& context_;
  NodeTable& nodes_;
  Outbox& outbox_;
  const RecoveryGate& gate_;
  ObjectTable& objects_;
  TombstoneTable& tombstones_;
  const LinkModel& links_;
  FailedPairs& pairs_;
  ReductionCatalog& catalog_;
  SourceWatcher& watcher_;
  ReductionDescriptors& descriptors_;
  FoldDispatcher& dispatcher_;
  CommitTracker& commits_;
};

}  // namespace phalanx::directory

#endif  // PHALANX_DIRECTORY_REDUCTIONS_RING_DRIVER_H_
