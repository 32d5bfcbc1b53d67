// The folds of one reduction that nodes have orders for, and the effects that carry the orders.
// Every change of a fold goes through the ledger, so effects and folds always agree.
//
//   kNone ──Place──► kPlaced ──MarkLost──► kLost ──MarkNodeDown, Withdraw──► kGone
//                        └───────────────MarkNodeDown, Withdraw────────────────▲
//   kLost, kGone ──Place──► kPlaced          any ──Drop──► kNone
//
// In kLost the node is up and does not have the fold. In kGone nothing is left to drop at the node.
// Drop emits DropFold in kPlaced and in kLost.
//
// Invariants, checked by CheckInvariants
//  1. Two placed folds never have one version.
//
// Owned by ReducePlan. Thread rule: no thread, lock, clock or I/O inside.
#ifndef PHALANX_DIRECTORY_REDUCTIONS_TREE_PLAN_FOLD_LEDGER_H_
#define PHALANX_DIRECTORY_REDUCTIONS_TREE_PLAN_FOLD_LEDGER_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "src/common/ids/ids.h"
#include "src/common/ids/version.h"
#include "src/directory/reductions/tree_plan/fold_versions.h"
#include "src/directory/reductions/tree_plan/plan_types.h"

namespace phalanx::directory {

struct Fold {
  enum class State : uint8_t { kNone, kPlaced, kLost, kGone };

  State state = State::kNone;
  NodeKey node;
  FoldTask task;
  int losses = 0;  // while it has been placed without a break

  // A node has had an order for the fold, and the plan still wants it.
  bool placed() const { return state != State::kNone; }
  // The node does not have the fold.
  bool lost() const { return state == State::kLost || state == State::kGone; }
};

class FoldLedger {
 public:
  // REQUIRES: `versions` outlives the ledger.
  explicit FoldLedger(FoldVersions& versions) : versions_(versions) {}

  // Emits PlaceFold unless the node has just this task. Returns true if the fold is at `node` now
  // and was not before. A fold that was at another node is dropped there.
  bool Place(Fold& fold, const NodeKey& node, FoldTask task);
  // Resets the fold.
  void Drop(Fold& fold);
  // Drops the fold at its node but keeps its place in the plan, so that Place follows.
  void Withdraw(Fold& fold);
  void MarkLost(Fold& fold) { fold.state = Fold::State::kLost; }
  // Does nothing if the fold is not placed at the node.
  void MarkNodeDown(Fold& fold, const NodeKey& node);

  void Commit(const NodeKey& node, const SlotVersion& version);
  void End(const absl::Status& why);
  // Returns the effects since the last call, in order.
  std::vector<ReduceEffect> TakeEffects() { return std::exchange(effects_, {}); }

  // Returns the task number of the placed fold of that version, if there is one.
  std::optional<int> NumberOf(const SlotVersion& version) const;
  // Returns how many versions the root has had.
  uint64_t epoch() const { return epoch_; }

  // `placed_folds`: how many folds the tree and the star have placed.
  absl::Status CheckInvariants(size_t placed_folds) const;

 private:
  void EmitDrop(const Fold& fold);

  FoldVersions& versions_;
  std::map<SlotVersion, int> numbers_;  // of placed folds, by version
  std::vector<ReduceEffect> effects_;
  uint64_t epoch_ = 0;
  SlotVersion last_root_;
};

}  // namespace phalanx::directory

#endif  // PHALANX_DIRECTORY_REDUCTIONS_TREE_PLAN_FOLD_LEDGER_H_
