// The folds that nodes report after a restart of the shard, and the tree that follows from them.
// Nodes keep their folds while the shard is down, so the plan gives every source that can still be
// had the seat that it had before. Owned by ReducePlan.
//
//   Add ... Add ──► MakeLayout ──► Clear         reports before ReducePlan::Begin; then one tree
//
// Reports can contradict each other, because nodes miss changes while the shard is down. The first
// of two contradicting reports counts. MakeLayout returns an empty layout if what is left describes
// no tree.
//
// Invariants, checked by CheckInvariants
//  1. All reports have one shape, the shape of the first one.
//  2. No source is in two reports.
//
// Thread rule: no thread, lock, clock or I/O inside.
#ifndef PHALANX_DIRECTORY_REDUCTIONS_TREE_PLAN_RESTORED_FOLDS_H_
#define PHALANX_DIRECTORY_REDUCTIONS_TREE_PLAN_RESTORED_FOLDS_H_

#include <map>
#include <set>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "phalanx/object_id.h"
#include "src/common/ids/ids.h"
#include "src/common/ids/version.h"
#include "src/directory/reductions/tree_plan/fold_versions.h"
#include "src/directory/reductions/tree_plan/plan_types.h"
#include "src/directory/reductions/tree_plan/source_table.h"
#include "src/directory/reductions/tree_plan/tree_layout.h"

namespace phalanx::directory {

class RestoredFolds {
 public:
  // REQUIRES: all outlive this.
  RestoredFolds(const PlanInputs& inputs, const SourceTable& sources, const FoldVersions& versions)
      : inputs_(inputs), table_(sources), versions_(versions) {}

  // Adds the report of a node about one FoldTask with that shape, number and version. `sources`:
  // its inputs that are no slots. Ignores a report that is invalid or contradicts an earlier one.
  void Add(int slots, int degree, int number, absl::Span<const ObjectId> sources,
           const NodeKey& node, const SlotVersion& version);
  // Removes the reports of a node. Later reports about their sources are still ignored.
  void ForgetNode(const NodeKey& node);
  void Clear() { reports_.clear(); }

  bool empty() const { return reports_.empty(); }
  // The node and the sources of the report with the lowest slot. REQUIRES: !empty().
  const NodeKey& first_node() const { return reports_.begin()->second.node; }
  const std::vector<int>& first_sources() const { return reports_.begin()->second.sources; }
  // Returns true if the reports cannot be about a star.
  bool DescribeTree() const;
  // Returns the tree that the reports are about. REQUIRES: !empty().
  TreeLayout MakeLayout() const;

  absl::Status CheckInvariants() const;

 private:
  struct Report {
    std::vector<int> sources;
    NodeKey node;
    SlotVersion version;
  };

  // Each returns false if the reports describe no such tree.
  bool FillRanges(TreeLayout& layout) const;
  bool FillSeats(TreeLayout& layout) const;
  int AddReportedSeats(TreeLayout& layout) const;
  bool AddMissingSeats(TreeLayout& layout, int left) const;
  std::set<int> ClosedSlots(const TreeLayout& layout) const;
  SlotVersion VersionOf(int number, const TreeLayout::Group& group,
                        const std::map<int, SlotVersion>& below, bool is_root) const;
  void PlaceRoot(TreeLayout& layout) const;
  const Report* ReportOf(int slot) const;

  const PlanInputs& inputs_;
  const SourceTable& table_;
  const FoldVersions& versions_;
  int slots_ = 0;
  int degree_ = 0;
  // A report about a slot itself has no seat number, and so comes before those about its leaves.
  std::map<SeatId, Report> reports_;
  std::set<int> reported_sources_;
};

}  // namespace phalanx::directory

#endif  // PHALANX_DIRECTORY_REDUCTIONS_TREE_PLAN_RESTORED_FOLDS_H_
