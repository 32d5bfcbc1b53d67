// The versions of the folds of one reduction. A version is a hash of the reduction's arguments and
// of the fold's inputs in their order, so a fold that is placed again with the same inputs has the
// same version at every node, and a restarted shard computes the same versions.
//
// Exception: a root that a node was ordered to drop has a void version there, because a READY or a
// CREATE of the dropped root can still be on the way. OfRoot never returns such a version again for
// that node. The set of dropped roots is the only state. Owned by ReducePlan.
//
// Thread rule: no thread, lock, clock or I/O inside.
#ifndef PHALANX_DIRECTORY_REDUCTIONS_TREE_PLAN_FOLD_VERSIONS_H_
#define PHALANX_DIRECTORY_REDUCTIONS_TREE_PLAN_FOLD_VERSIONS_H_

#include <cstddef>
#include <cstdint>
#include <set>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "phalanx/object_id.h"
#include "src/common/ids/ids.h"
#include "src/common/ids/version.h"
#include "src/directory/reductions/tree_plan/plan_types.h"
#include "src/directory/reductions/tree_plan/source_table.h"

namespace phalanx::directory {

// The text that a version is the hash of. Inputs are added in the order of the fold.
class VersionText {
 public:
  void AddSource(const ObjectId& id, const Generation& generation);
  void AddSlot(const SlotVersion& version);
  // An input of a star, which has its own kinds of inputs.
  void AddStarSource(bool held, const ObjectId& id, const Generation& generation);

 private:
  friend class FoldVersions;

  void Append(uint64_t value);
  void Append(const Generation& generation);
  SlotVersion Hash() const;

  std::string text_;
};

class FoldVersions {
 public:
  // If more roots are dropped, all of them are forgotten.
  static constexpr size_t kMaxDroppedRoots = 4096;

  // REQUIRES: both outlive this.
  FoldVersions(const PlanInputs& inputs, const SourceTable& sources)
      : inputs_(inputs), sources_(sources) {}

  // Returns the text of a fold without inputs.
  VersionText Begin(bool root) const;
  // Returns the version of a slot below the root, or of a root that has never been dropped.
  SlotVersion Of(const VersionText& text) const { return text.Hash(); }
  SlotVersion OfRoot(VersionText text, const NodeKey& node) const;
  // Returns the version of a leaf, which only hands its source on.
  SlotVersion OfLeaf(const ObjectId& source, const Generation& generation) const;

  void OnRootDropped(const NodeKey& node, const SlotVersion& version);

  absl::Status CheckInvariants() const;

 private:
  const PlanInputs& inputs_;
  const SourceTable& sources_;
  std::set<std::pair<NodeKey, SlotVersion>> dropped_roots_;
};

}  // namespace phalanx::directory

#endif  // PHALANX_DIRECTORY_REDUCTIONS_TREE_PLAN_FOLD_VERSIONS_H_
