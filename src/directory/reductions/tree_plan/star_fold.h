// The fold of a small reduction: one node folds all sources, and those that the node does not hold
// travel to it with the order. Such a fold is committed as soon as it is placed, since nothing that
// it needs can be lost on the way. Owned by ReducePlan.
//
//   Pays() ──► FindPlacement() ──► Place() ──► committed
//
// FindPlacement is called at every event until there are enough sources. The count of usable
// sources is kept for one node, so such a call does not visit the sources; BeforeChange and
// AfterChange surround every change of a source's state.
//
// Invariants, checked by CheckInvariants
//  1. The count is that of the sources before its end that are usable at its node.
//
// Thread rule: no thread, lock, clock or I/O inside.
#ifndef PHALANX_DIRECTORY_REDUCTIONS_TREE_PLAN_STAR_FOLD_H_
#define PHALANX_DIRECTORY_REDUCTIONS_TREE_PLAN_STAR_FOLD_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "src/common/ids/ids.h"
#include "src/directory/reductions/tree_plan/fold_ledger.h"
#include "src/directory/reductions/tree_plan/fold_versions.h"
#include "src/directory/reductions/tree_plan/plan_types.h"
#include "src/directory/reductions/tree_plan/restored_folds.h"
#include "src/directory/reductions/tree_plan/source_table.h"

namespace phalanx::directory {

class StarFold {
 public:
  // A star has at most so many bytes of sources.
  static constexpr uint64_t kMaxBytes = uint64_t{1} << 20;

  struct Placement {
    NodeKey node;
    std::vector<int> sources;  // in the order of the fold
  };

  // REQUIRES: all outlive this.
  StarFold(const PlanInputs& inputs, SourceTable& sources, const RestoredFolds& restored,
           const FoldVersions& versions, FoldLedger& ledger)
      : inputs_(inputs),
        table_(sources),
        restored_(restored),
        versions_(versions),
        ledger_(ledger) {}

  // Returns true if a star is small enough, and not slower than a tree by the model.
  bool Pays() const;
  // Returns nothing if too few of the sources can be had at the node now.
  std::optional<Placement> FindPlacement();
  // Seats the sources and places the fold. REQUIRES: the sources fit (SourceTable::CheckFits).
  void Place(const Placement& placement);
  void Drop() { ledger_.Drop(fold_); }
  void MarkNodeDown(const NodeKey& node) { ledger_.MarkNodeDown(fold_, node); }
  // Returns how often nodes have lost the star, including now. Unlike in Fold::losses, a Drop does
  // not reset the number: a star is dropped and placed again after each loss.
  int CountLoss() { return ++losses_; }

  void BeforeChange(int source) { usable_ -= Counts(source) ? 1 : 0; }
  void AfterChange(int source) { usable_ += Counts(source) ? 1 : 0; }

  const Fold& fold() const { return fold_; }
  Fold& fold() { return fold_; }

  absl::Status CheckInvariants() const;

 private:
  NodeKey ChooseNode() const;
  bool Usable(const SourceTable::Source& source, const NodeKey& node) const;
  bool Counts(int source) const { return source < end_ && Usable(table_[source], node_); }
  bool HasEnough(const NodeKey& node);
  std::vector<int> UsableSources(const NodeKey& node) const;

  const PlanInputs& inputs_;
  SourceTable& table_;
  const RestoredFolds& restored_;
  const FoldVersions& versions_;
  FoldLedger& ledger_;

  Fold fold_;
  int losses_ = 0;
  // Of the sources before end_, usable_ can be had at node_.
  NodeKey node_;
  int end_ = 0;
  int usable_ = 0;
};

}  // namespace phalanx::directory

#endif  // PHALANX_DIRECTORY_REDUCTIONS_TREE_PLAN_STAR_FOLD_H_
