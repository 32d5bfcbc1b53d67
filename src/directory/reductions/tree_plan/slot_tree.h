// The tree of one reduction: its slots, their seats, and the fold of each. Owned by ReducePlan,
// which calls it in this order for every event:
//
//   OnSourceChanged, MarkNodeDown, ... ──► FillSeats ──► Flush
//   what is no longer true leaves          seats filled   folds placed, the deepest first
//
// Every change marks the slots whose fold can be another one now. Flush visits marked slots only,
// so an event costs the slots between the change and the root.
//
//   slot:  kNew ──a source leaves──► kVacated        a seat of either can be free or taken
//            └───────CloseSlot────────┴──► kClosed   no seats; its child is below its parent
//
// Leaves and slots have one row of numbers, which nodes report after a restart: slot s of n has the
// number s, and the leaf of its seat i the number (i + 1) * (n + 1) + s.
//
// Invariants between calls of Flush, checked by CheckInvariants after it
//  1. A fold that is placed has its whole subtree placed. So to lower a slot is to drop its fold
//  and
//     the placed ones above it, up to the first slot that has none.
//  2. `missing` of a slot is its empty seats and its children that are not placed.
//  3. A slot is marked whenever the inputs of its fold, or their nodes, can have changed.
//  4. A source is in at most one seat, and every seat without a source is free.
//
// Thread rule: no thread, lock, clock or I/O inside.
#ifndef PHALANX_DIRECTORY_REDUCTIONS_TREE_PLAN_SLOT_TREE_H_
#define PHALANX_DIRECTORY_REDUCTIONS_TREE_PLAN_SLOT_TREE_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "src/common/ids/ids.h"
#include "src/directory/reductions/tree_plan/fold_ledger.h"
#include "src/directory/reductions/tree_plan/fold_versions.h"
#include "src/directory/reductions/tree_plan/plan_types.h"
#include "src/directory/reductions/tree_plan/reduce_shape.h"
#include "src/directory/reductions/tree_plan/source_table.h"
#include "src/directory/reductions/tree_plan/tree_layout.h"

namespace phalanx::directory {

class SlotTree {
 public:
  static constexpr int kNone = ReduceShape::kNone;

  struct Seat {
    int source = kNone;
    Generation generation;
    NodeKey node;  // where the source is taken from
    Fold leaf;     // placed if `node` is not the slot's
  };

  struct Slot {
    enum class State : uint8_t { kNew, kVacated, kClosed };

    int parent = kNone;
    int depth = 0;
    State state = State::kNew;
    std::vector<Seat> seats;
    NodeKey node;     // where it is computed; not valid while all seats are empty
    int missing = 0;  // empty seats, and children that are not placed
    Fold fold;

    bool closed() const { return state == State::kClosed; }
  };

  // REQUIRES: all outlive this.
  SlotTree(const PlanInputs& inputs, SourceTable& sources, const FoldVersions& versions,
           FoldLedger& ledger)
      : inputs_(inputs), sources_(sources), versions_(versions), ledger_(ledger) {}

  // ---- the whole tree
  // Seats the sources that the layout names. Returns the error of SourceTable::CheckFits; the tree
  // is incomplete then and must be cleared. REQUIRES: empty(), and the layout has groups.
  absl::Status Build(const TreeLayout& layout);
  // Drops all folds. The caller clears the seats of the sources.
  void Clear();
  bool empty() const { return !shape_.has_value(); }

  // ---- what happens; REQUIRES: !empty(), but for MarkNodeDown
  // A source, with its new state: keeps its seat, takes its bytes from another node, or leaves.
  void OnSourceChanged(int source);
  void MarkNodeDown(const NodeKey& node);
  // A node that is up has lost the fold of that number. Moves the fold to another node that holds
  // everything that it takes from `from`, if there is one.
  void OnFoldLost(int number, const NodeKey& from);
  // The requested root is down: the plan chooses the node of the root from now on.
  void OnRootDown();
  // The committed result is lost: all folds are checked and placed again.
  void OnResultLost();
  // Seats waiting sources. Returns the error of SourceTable::CheckFits.
  absl::Status FillSeats();
  void Flush();

  // ---- looking
  // Returns how many seats are taken.
  int seated() const { return seated_; }
  bool has_free_seats() const { return !free_.empty(); }
  int degree() const { return shape_ ? shape_->degree() : 0; }
  const std::vector<Slot>& slots() const { return slots_; }
  const Fold& root_fold() const { return slots_[TopSlot()].fold; }
  int LeafNumber(int slot, int seat) const { return (seat + 1) * Row() + slot; }
  Fold& FoldOf(int number);
  size_t placed_folds() const;

  // `committed`: changes are not followed, so seats and folds can differ from the sources.
  absl::Status CheckInvariants(bool committed) const;

 private:
  // Where the root is computed.
  enum class Root : uint8_t {
    kAnywhere,  // no requested root is up: at a source, like any slot
    kPinned,    // in the tree's root slot, at the requested root
    // In a slot without seats above the tree's root, at the requested root; until a source arrives
    // there, which pins the tree's root.
    kDelivering,
  };

  // ---- the shape
  void LinkSlots();
  // A row of numbers: the slots, and the delivering one.
  int Row() const { return shape_->slots() + 1; }
  bool Pinned(int slot) const { return root_ == Root::kPinned && slot == shape_->root(); }
  bool Delivering(int slot) const { return slot == shape_->slots(); }
  // The slot whose output is the result.
  int TopSlot() const { return root_ == Root::kDelivering ? shape_->slots() : shape_->root(); }
  std::vector<int> ChildrenOf(int slot) const;
  // Returns the slot, or the first one below it that is not closed; kNone if there is none.
  int OpenSlotBelow(int slot) const;
  bool Closable(int slot) const;
  void CloseSlot(int slot);
  bool PinsRoot(const SourceTable::Source& source) const;
  void PinRoot();
  void DropDelivering();

  // ---- seats
  NodeKey ChooseHolder(const SourceTable::Source& source, const Slot& slot,
                       const NodeKey& avoided) const;
  SeatId SeatFor(const SourceTable::Source& source);
  int HostAbove(const SourceTable::Source& source, int slot) const;
  SeatId SlowSeat();
  void AddFree(const SeatId& seat);
  SeatId ReplaceSlot(int slot, int host);
  bool IsSlow(const Seat& seat) const {
    return seat.source != kNone && sources_[seat.source].slow();
  }
  void TakeSeat(int source, const SeatId& seat, const NodeKey& node);
  void LeaveSeat(SeatId seat);  // by value: it clears the source's own

  // ---- folds
  void Mark(int slot);
  void Lower(int slot);
  void UpdateSlot(int slot);
  void UpdateNode(int slot);
  void UpdateLeaf(const SeatId& seat);
  FoldTask NewTask(int number) const;
  FoldTask TaskOf(int slot) const;
  void FinishRoot(FoldTask& task, VersionText text, const NodeKey& node) const;
  FoldTask LeafTaskOf(const SeatId& seat) const;

  absl::Status CheckSeats(bool committed) const;
  absl::Status CheckSeat(const SeatId& id, bool committed) const;
  absl::Status CheckSlot(int slot) const;
  absl::Status CheckFolds(int slot) const;

  const PlanInputs& inputs_;
  SourceTable& sources_;
  const FoldVersions& versions_;
  FoldLedger& ledger_;

  std::optional<ReduceShape> shape_;
  // The slots of the shape, then the delivering one if the root is kDelivering.
  std::vector<Slot> slots_;
  Root root_ = Root::kAnywhere;
  int seated_ = 0;
  std::set<SeatId> free_;
  SeatId slow_from_;                      // no free seat before it suits a slow source
  std::set<std::pair<int, int>> marked_;  // (-depth, slot): the deepest first
};

}  // namespace phalanx::directory

#endif  // PHALANX_DIRECTORY_REDUCTIONS_TREE_PLAN_SLOT_TREE_H_
