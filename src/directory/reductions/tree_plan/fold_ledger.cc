#include "src/directory/reductions/tree_plan/fold_ledger.h"

#include "src/common/defects.h"

namespace phalanx::directory {

bool FoldLedger::Place(Fold& fold, const NodeKey& node, FoldTask task) {
  const bool moved = !fold.placed() || fold.node != node;
  // The node has this order already.
  if (!moved && !fold.lost() && fold.task == task) return false;
  if (fold.placed() && moved) EmitDrop(fold);
  numbers_[task.version] = task.slot;
  // The same version at another node is no new epoch: the result has the same bytes.
  if (task.root && task.version != last_root_) {
    last_root_ = task.version;
    ++epoch_;
  }
  effects_.emplace_back(PlaceFold{node, task});
  fold.state = Fold::State::kPlaced;
  fold.node = node;
  fold.task = std::move(task);
  return moved;
}

void FoldLedger::EmitDrop(const Fold& fold) {
  // A node that is down has no folds, and its next incarnation starts without them.
  if (fold.state == Fold::State::kGone) return;
  effects_.emplace_back(DropFold{fold.node, fold.task.version});
  // A READY of this root can still be on the way (fold_versions.h).
  if (fold.task.root) versions_.OnRootDropped(fold.node, fold.task.version);
}

void FoldLedger::Drop(Fold& fold) {
  if (!fold.placed()) return;
  if (!DefectActive(Defect::kFoldLeftBehind)) EmitDrop(fold);
  numbers_.erase(fold.task.version);
  fold = Fold();
}

void FoldLedger::Withdraw(Fold& fold) {
  EmitDrop(fold);
  fold.state = Fold::State::kGone;
}

void FoldLedger::MarkNodeDown(Fold& fold, const NodeKey& node) {
  if (fold.placed() && fold.node == node) fold.state = Fold::State::kGone;
}

void FoldLedger::Commit(const NodeKey& node, const SlotVersion& version) {
  effects_.emplace_back(CommitFold{node, version});
}

void FoldLedger::End(const absl::Status& why) { effects_.emplace_back(EndReduction{why}); }

std::optional<int> FoldLedger::NumberOf(const SlotVersion& version) const {
  const auto it = numbers_.find(version);
  if (it == numbers_.end()) return std::nullopt;
  return it->second;
}

absl::Status FoldLedger::CheckInvariants(size_t placed_folds) const {
  // A shared version would be one entry for two folds.
  if (placed_folds != numbers_.size()) return absl::InternalError("two folds have one version");
  return absl::OkStatus();
}

}  // namespace phalanx::directory
