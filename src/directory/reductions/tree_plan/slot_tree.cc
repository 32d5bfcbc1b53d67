#include "src/directory/reductions/tree_plan/slot_tree.h"

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "src/common/defects.h"
#include "src/common/status_macros.h"

namespace phalanx::directory {

// ---- the whole tree

absl::Status SlotTree::Build(const TreeLayout& layout) {
  shape_.emplace(static_cast<int>(layout.groups.size()), layout.degree);
  if (inputs_.root_up) root_ = layout.root_in_tree ? Root::kPinned : Root::kDelivering;
  slots_.assign(shape_->slots() + (root_ == Root::kDelivering ? 1 : 0), Slot());
  LinkSlots();
  for (int slot = 0; slot < shape_->slots(); ++slot) {
    if (layout.groups[slot].members.empty()) CloseSlot(slot);
  }
  for (int number = 0; number < shape_->slots(); ++number) {
    Slot& slot = slots_[number];
    if (slot.closed()) continue;
    const TreeLayout::Group& group = layout.groups[number];
    slot.seats.resize(group.members.size());
    slot.missing += static_cast<int>(group.members.size());
    slot.node = Pinned(number) ? inputs_.root : group.node;
    for (int seat = 0; seat < static_cast<int>(group.members.size()); ++seat) {
      const SeatId id = {number, seat};
      AddFree(id);
      const auto& [index, node] = group.members[seat];
      if (index == kNone) continue;
      if (inputs_.spec.order == ReduceSpec::Order::kFixed) sources_.ReserveSeat(index, id);
      const SourceTable::Source& source = sources_[index];
      // The seat stays free until the source is ready.
      if (!source.seatable()) continue;
      PHALANX_RETURN_IF_ERROR(sources_.CheckFits(source));
      const bool held = Holds(*source.state, node);
      TakeSeat(index, id, held ? node : ChooseHolder(source, slot, NodeKey()));
    }
  }
  return absl::OkStatus();
}

void SlotTree::LinkSlots() {
  if (root_ == Root::kDelivering) {
    slots_.back().missing = 1;
    slots_.back().node = inputs_.root;
    slots_[shape_->root()].parent = shape_->slots();
    slots_[shape_->root()].depth = 1;
  }
  // Without recursion: a chain is as deep as it has slots.
  std::vector<int> open = {shape_->root()};
  while (!open.empty()) {
    const int slot = open.back();
    open.pop_back();
    for (const int child : shape_->Children(slot)) {
      slots_[child].parent = slot;
      slots_[child].depth = slots_[slot].depth + 1;
      ++slots_[slot].missing;
      open.push_back(child);
    }
  }
}

void SlotTree::Clear() {
  for (auto slot = slots_.rbegin(); slot != slots_.rend(); ++slot) {
    ledger_.Drop(slot->fold);
    for (Seat& seat : slot->seats) ledger_.Drop(seat.leaf);
  }
  slots_.clear();
  shape_.reset();
  free_.clear();
  slow_from_ = SeatId();
  marked_.clear();
  root_ = Root::kAnywhere;
  seated_ = 0;
}

// ---- what happens

void SlotTree::OnSourceChanged(int index) {
  const SourceTable::Source& source = sources_[index];
  if (!source.seat.valid()) return;
  Seat& seat = slots_[source.seat.slot].seats[source.seat.seat];
  const bool same = source.state && (source.state->generation == seat.generation ||
                                     DefectActive(Defect::kNewAttemptNotNoticed));
  // A source with inline bytes alone cannot stay: a slot reads its sources from nodes.
  if (!same || source.state->holders.empty()) {
    LeaveSeat(source.seat);
  } else if (!Holds(*source.state, seat.node)) {
    // The same bytes from another node: the version stays, and no slot above starts over.
    seat.node = ChooseHolder(source, slots_[source.seat.slot], seat.node);
    Mark(source.seat.slot);
  }
}

void SlotTree::MarkNodeDown(const NodeKey& node) {
  for (Slot& slot : slots_) {
    ledger_.MarkNodeDown(slot.fold, node);
    for (Seat& seat : slot.seats) ledger_.MarkNodeDown(seat.leaf, node);
  }
}

void SlotTree::OnFoldLost(int number, const NodeKey& from) {
  const int at = number % Row();
  Slot& slot = slots_[at];
  Mark(at);
  if (number >= Row()) {
    Seat& seat = slot.seats[number / Row() - 1];
    if (seat.source != kNone) seat.node = ChooseHolder(sources_[seat.source], slot, from);
    return;
  }
  if (Pinned(at)) return;
  std::vector<Seat*> own;
  for (Seat& seat : slot.seats) {
    if (seat.source != kNone && seat.node == from) own.push_back(&seat);
  }
  // The fold has only outputs of other folds as inputs, so nothing calls for another node.
  if (own.empty()) return;
  // All of them move or none: a slot that is split over two nodes has another version, and every
  // slot above it would start over.
  for (const ReduceSource::Holder& holder : sources_[own.front()->source].state->holders) {
    const bool all = std::all_of(own.begin(), own.end(), [&](const Seat* seat) {
      return Holds(*sources_[seat->source].state, holder.node);
    });
    if (!all || holder.node == from) continue;
    for (Seat* seat : own) seat->node = holder.node;
    return;
  }
}

void SlotTree::OnRootDown() {
  const int tree_root = shape_->root();
  if (root_ == Root::kDelivering) {
    // The tree's own root becomes the root. A root's version differs from that of a slot with the
    // same inputs, so the fold there is placed again.
    Lower(tree_root);
    Lower(shape_->slots());
    DropDelivering();
  }
  root_ = Root::kAnywhere;
  Mark(tree_root);
}

void SlotTree::OnResultLost() {
  // The generation is void, so the root gets a new version if its node is still up.
  ledger_.Withdraw(slots_[TopSlot()].fold);
  // Changes were not followed since the commit.
  for (int i = 0; i < sources_.size(); ++i) OnSourceChanged(i);
  for (int slot = 0; slot < static_cast<int>(slots_.size()); ++slot) Mark(slot);
}

absl::Status SlotTree::FillSeats() {
  const SourceTable::ArrivalSet& waiting = sources_.waiting();
  for (auto it = waiting.begin(); it != waiting.end() && !free_.empty();) {
    const int index = it->second;
    // TakeSeat erases the entry.
    ++it;
    const SourceTable::Source& source = sources_[index];
    // Those behind it are slow, too.
    if (sources_.HeldBack(source)) break;
    if (!source.seatable()) continue;
    const bool fixed = inputs_.spec.order == ReduceSpec::Order::kFixed;
    // A spare of a fixed order has no seat. If a source before it fails, the tree is built again.
    if (fixed && !source.reserved_seat.valid()) continue;
    PHALANX_RETURN_IF_ERROR(sources_.CheckFits(source));
    const SeatId seat = fixed ? source.reserved_seat : SeatFor(source);
    Slot& slot = slots_[seat.slot];
    TakeSeat(index, seat, ChooseHolder(source, slot, NodeKey()));
    // A slot that begins with a slow source moves to the first fast one: nothing was sent there
    // yet.
    const bool slow_there =
        std::any_of(slot.seats.begin(), slot.seats.end(),
                    [&](const Seat& other) { return IsSlow(other) && other.node == slot.node; });
    if (!source.slow() && slow_there && !slot.fold.placed()) slot.node = NodeKey();
  }
  return absl::OkStatus();
}

// ---- the shape

std::vector<int> SlotTree::ChildrenOf(int slot) const {
  if (Delivering(slot)) return {shape_->root()};
  std::vector<int> children;
  for (const int child : shape_->Children(slot)) {
    if (const int open = OpenSlotBelow(child); open != kNone) children.push_back(open);
  }
  return children;
}

int SlotTree::OpenSlotBelow(int slot) const {
  while (slots_[slot].closed()) {
    const std::vector<int> below = shape_->Children(slot);
    if (below.empty()) return kNone;
    slot = below.front();
  }
  return slot;
}

// A closed slot is replaced by the one slot below it, so a slot with several children cannot be
// closed.
bool SlotTree::Closable(int slot) const {
  return slot != shape_->root() && slots_[slot].seats.size() <= 1 &&
         shape_->Children(slot).size() <= 1;
}

// REQUIRES: Closable(slot), its seat is free, and it is not placed.
void SlotTree::CloseSlot(int number) {
  Slot& slot = slots_[number];
  const int parent = slot.parent;
  const int depth = slot.depth;
  free_.erase({number, 0});
  marked_.erase({-depth, number});
  slot = Slot();
  slot.depth = depth;
  slot.state = Slot::State::kClosed;
  --slots_[parent].missing;
  if (const int below = OpenSlotBelow(number); below != kNone) {
    slots_[below].parent = parent;
    slots_[parent].missing += slots_[below].fold.placed() ? 0 : 1;
  }
  Mark(parent);
}

// ---- seats

// Returns a complete holder that saves the source a leaf of its own if there is one, otherwise the
// best. Returns `avoided` only if there is no other.
NodeKey SlotTree::ChooseHolder(const SourceTable::Source& source, const Slot& slot,
                               const NodeKey& avoided) const {
  const ReduceSource& state = *source.state;
  if (slot.node.valid() && slot.node != avoided && HoldsComplete(state, slot.node)) {
    return slot.node;
  }
  for (const Seat& seat : slot.seats) {
    if (seat.source == kNone || seat.node == avoided) continue;
    if (HoldsComplete(state, seat.node)) return seat.node;
  }
  const ReduceSource::Holder* best = nullptr;
  for (const ReduceSource::Holder& holder : state.holders) {
    if (holder.node == avoided) continue;
    if (best == nullptr || (holder.complete && !best->complete)) best = &holder;
  }
  return best == nullptr ? avoided : best->node;
}

// A source at the requested root takes the seat of the tree's root, which moves there. In a slot
// below, its node would receive the bytes of all other sources twice.
bool SlotTree::PinsRoot(const SourceTable::Source& source) const {
  return root_ == Root::kDelivering && sources_.AtRoot(source) &&
         free_.contains({shape_->root(), 0}) && slots_[shape_->root()].seats.size() == 1;
}

// The slot above the tree's root, which would only deliver, is not needed. REQUIRES: the tree's
// root has no source, so neither has a fold.
void SlotTree::PinRoot() {
  const int tree_root = shape_->root();
  DropDelivering();
  slots_[tree_root].node = inputs_.root;
  root_ = Root::kPinned;
}

void SlotTree::DropDelivering() {
  marked_.erase({-slots_.back().depth, shape_->slots()});
  slots_.pop_back();
  slots_[shape_->root()].parent = kNone;
}

// Returns the first free seat. If a slot above it is computed where the source is, closes the free
// seat's slot and returns a new seat in the slot above: two folds of one pipeline at one node would
// share the node's link. A slow source gets a leaf.
SeatId SlotTree::SeatFor(const SourceTable::Source& source) {
  if (PinsRoot(source)) {
    PinRoot();
    return {shape_->root(), 0};
  }
  const SeatId first = *free_.begin();
  const int host = HostAbove(source, first.slot);
  if (host != kNone) return ReplaceSlot(first.slot, host);
  return source.slow() ? SlowSeat() : first;
}

// Returns a seat in a slot that receives nothing, or a new one in the slot above a free slot, which
// is closed: the slot above gets a leaf for it, once it has a faster source. Returns the first free
// seat if there are none such.
SeatId SlotTree::SlowSeat() {
  for (auto at = free_.lower_bound(slow_from_); at != free_.end(); ++at) {
    const SeatId seat = *at;
    sources_.CountExamined(1);
    // A slot keeps its children, and gets no fewer seats: what does not suit now never will.
    slow_from_ = seat;
    if (shape_->Children(seat.slot).empty() && slots_[seat.slot].seats.size() == 1) return seat;
    if (Closable(seat.slot)) return ReplaceSlot(seat.slot, slots_[seat.slot].parent);
  }
  return *free_.begin();
}

void SlotTree::AddFree(const SeatId& seat) {
  free_.insert(seat);
  slow_from_ = std::min(slow_from_, seat);
}

// Closes the slot and returns a new seat in the slot `host` above it. REQUIRES: Closable(slot), and
// its seat is free.
SeatId SlotTree::ReplaceSlot(int slot, int host) {
  CloseSlot(slot);
  const SeatId added = {host, static_cast<int>(slots_[host].seats.size())};
  slots_[host].seats.emplace_back();
  ++slots_[host].missing;
  AddFree(added);
  return added;
}

// Returns kNone if there is no such slot.
int SlotTree::HostAbove(const SourceTable::Source& source, int slot) const {
  if (!Closable(slot)) return kNone;
  // The requested root folds in any case, so its sources never need a slot of their own.
  if (Pinned(shape_->root()) && sources_.AtRoot(source)) return shape_->root();
  // Seats are first filled from the bottom, so the slots above a new one are still empty.
  if (slots_[slot].state != Slot::State::kVacated) return kNone;
  for (int at = slots_[slot].parent; at != kNone; at = slots_[at].parent) {
    const NodeKey& node = slots_[at].node;
    const bool held = HoldsComplete(*source.state, node) || BestHolder(*source.state).node == node;
    const bool used =
        std::any_of(slots_[at].seats.begin(), slots_[at].seats.end(),
                    [&](const Seat& seat) { return seat.source != kNone && seat.node == node; });
    if (held && used) return at;
  }
  return kNone;
}

void SlotTree::TakeSeat(int source, const SeatId& id, const NodeKey& node) {
  sources_.TakeSeat(source, id);
  Slot& slot = slots_[id.slot];
  Seat& seat = slot.seats[id.seat];
  seat.source = source;
  // Kept beside the state: after a commit the source can have a newer attempt than the fold.
  seat.generation = sources_[source].state->generation;
  seat.node = node;
  if (DefectActive(Defect::kSlotAcrossNodes) && slot.node.valid()) seat.node = slot.node;
  free_.erase(id);
  --slot.missing;
  ++seated_;
  Mark(id.slot);
}

void SlotTree::LeaveSeat(SeatId id) {
  Slot& slot = slots_[id.slot];
  Seat& seat = slot.seats[id.seat];
  ledger_.Drop(seat.leaf);
  Lower(id.slot);
  sources_.LeaveSeat(seat.source);
  seat = Seat();
  if (!DefectActive(Defect::kSeatMiscountedAfterLoss)) ++slot.missing;
  --seated_;
  slot.state = Slot::State::kVacated;
  AddFree(id);
  Mark(id.slot);
}

// ---- folds

Fold& SlotTree::FoldOf(int number) {
  Slot& slot = slots_[number % Row()];
  return number < Row() ? slot.fold : slot.seats[number / Row() - 1].leaf;
}

size_t SlotTree::placed_folds() const {
  size_t folds = 0;
  for (const Slot& slot : slots_) {
    folds += slot.fold.placed() ? 1 : 0;
    for (const Seat& seat : slot.seats) folds += seat.leaf.placed() ? 1 : 0;
  }
  return folds;
}

void SlotTree::Mark(int slot) {
  if (slot != kNone && !slots_[slot].closed()) marked_.insert({-slots_[slot].depth, slot});
}

void SlotTree::Lower(int slot) {
  // By invariant 1 no slot above the first one without a fold has a fold.
  while (slot != kNone && slots_[slot].fold.placed()) {
    ledger_.Drop(slots_[slot].fold);
    slot = slots_[slot].parent;
    if (slot != kNone) ++slots_[slot].missing;
    if (DefectActive(Defect::kAncestorsNotLowered)) return;
  }
}

void SlotTree::Flush() {
  // The deepest first: a slot's task names the versions and nodes of the folds below it.
  while (!marked_.empty()) {
    const int slot = marked_.begin()->second;
    marked_.erase(marked_.begin());
    UpdateSlot(slot);
  }
}

void SlotTree::UpdateSlot(int number) {
  Slot& slot = slots_[number];
  UpdateNode(number);
  for (int seat = 0; seat < static_cast<int>(slot.seats.size()); ++seat) {
    UpdateLeaf({number, seat});
  }
  // The slot is marked again when what is missing is placed.
  if (slot.missing > 0) return;
  FoldTask task = TaskOf(number);
  // A source that comes to the slot's node or leaves it for a leaf changes the kinds of inputs, and
  // so the version. The folds above are of the old one.
  if (slot.fold.placed() && slot.fold.task.version != task.version) Lower(number);
  const bool was_placed = slot.fold.placed();
  if (!ledger_.Place(slot.fold, slot.node, std::move(task))) return;
  if (slot.parent != kNone && !was_placed) --slots_[slot.parent].missing;
  if (was_placed && DefectActive(Defect::kMovedFoldKeepsSender)) return;
  // The order of the parent names the version and the node of this fold.
  Mark(slot.parent);
}

void SlotTree::UpdateNode(int number) {
  Slot& slot = slots_[number];
  if (Pinned(number) || Delivering(number)) {
    slot.node = inputs_.root;
    return;
  }
  // The slot stays where it is while it has one source there: a move makes its inputs travel again.
  const auto at_slot = [&](const Seat& seat) {
    return seat.source != kNone && seat.node == slot.node;
  };
  if (std::any_of(slot.seats.begin(), slot.seats.end(), at_slot)) return;
  // A slow node receives nothing if there is another.
  const Seat* best = nullptr;
  for (const Seat& seat : slot.seats) {
    if (seat.source == kNone) continue;
    if (best == nullptr || (IsSlow(*best) && !IsSlow(seat))) best = &seat;
  }
  slot.node = best == nullptr ? NodeKey() : best->node;
}

void SlotTree::UpdateLeaf(const SeatId& id) {
  Seat& seat = slots_[id.slot].seats[id.seat];
  if (seat.source == kNone || seat.node == slots_[id.slot].node) {
    ledger_.Drop(seat.leaf);
  } else {
    ledger_.Place(seat.leaf, seat.node, LeafTaskOf(id));
  }
}

FoldTask SlotTree::NewTask(int number) const {
  FoldTask task;
  task.slot = number;
  task.slots = shape_->slots();
  task.degree = shape_->degree();
  task.size_bytes = inputs_.size_bytes;
  task.planned = sources_.wanted();
  return task;
}

FoldTask SlotTree::TaskOf(int number) const {
  const Slot& slot = slots_[number];
  FoldTask task = NewTask(number);
  task.root = number == TopSlot();
  VersionText text = versions_.Begin(task.root);
  const auto add_fold = [&](const Fold& fold) {
    task.inputs.push_back(
        {FoldInput::Kind::kSlot, ObjectId(), Generation(), fold.node, fold.task.version});
    text.AddSlot(fold.task.version);
  };
  const std::vector<int> children = ChildrenOf(number);
  // Slots are numbered in the order of the fold. The first child can have a greater number: if the
  // first subtree is closed as a whole, the slot's own sources come first.
  const bool child_first = !children.empty() && children.front() < number;
  if (child_first) add_fold(slots_[children.front()].fold);
  for (const Seat& seat : slot.seats) {
    if (seat.node != slot.node) {
      add_fold(seat.leaf);
      continue;
    }
    const ObjectId& id = sources_[seat.source].id;
    task.inputs.push_back({FoldInput::Kind::kSource, id, seat.generation, NodeKey()});
    text.AddSource(id, seat.generation);
  }
  for (size_t i = child_first ? 1 : 0; i < children.size(); ++i) add_fold(slots_[children[i]].fold);
  if (task.root) {
    FinishRoot(task, std::move(text), slot.node);
  } else {
    task.version = versions_.Of(text);
  }
  return task;
}

void SlotTree::FinishRoot(FoldTask& task, VersionText text, const NodeKey& node) const {
  task.version = versions_.OfRoot(std::move(text), node);
  // Slots are numbered in the order of the fold.
  for (const Slot& slot : slots_) {
    for (const Seat& seat : slot.seats) task.reduced_from.push_back(sources_[seat.source].id);
  }
  task.metadata = sources_.SeatedMetadata();
}

FoldTask SlotTree::LeafTaskOf(const SeatId& id) const {
  const Seat& seat = slots_[id.slot].seats[id.seat];
  const ObjectId& source = sources_[seat.source].id;
  FoldTask task = NewTask(LeafNumber(id.slot, id.seat));
  task.inputs.push_back({FoldInput::Kind::kSource, source, seat.generation, NodeKey()});
  task.version = versions_.OfLeaf(source, seat.generation);
  return task;
}

// ---- invariants

absl::Status SlotTree::CheckInvariants(bool committed) const {
  PHALANX_RETURN_IF_ERROR(CheckSeats(committed));
  if (committed || empty()) return absl::OkStatus();
  if (!marked_.empty()) return absl::InternalError("something is left to be placed");
  for (int number = 0; number < static_cast<int>(slots_.size()); ++number) {
    PHALANX_RETURN_IF_ERROR(CheckSlot(number));
  }
  return absl::OkStatus();
}

absl::Status SlotTree::CheckSeats(bool committed) const {
  int taken = 0;
  int open = 0;
  for (int number = 0; number < static_cast<int>(slots_.size()); ++number) {
    for (int seat = 0; seat < static_cast<int>(slots_[number].seats.size()); ++seat) {
      ++(slots_[number].seats[seat].source == kNone ? open : taken);
      PHALANX_RETURN_IF_ERROR(CheckSeat({number, seat}, committed));
    }
  }
  if (taken != seated_ || open != static_cast<int>(free_.size())) {
    return absl::InternalError("seats are miscounted");
  }
  if (!empty() && taken + open != sources_.wanted()) {
    return absl::InternalError("there are not as many seats as sources are wanted");
  }
  return absl::OkStatus();
}

absl::Status SlotTree::CheckSeat(const SeatId& id, bool committed) const {
  const Seat& seat = slots_[id.slot].seats[id.seat];
  if (seat.source == kNone) {
    return free_.count(id) > 0 ? absl::OkStatus() : absl::InternalError("an empty seat is taken");
  }
  const SourceTable::Source& source = sources_[seat.source];
  const auto error = [&source](absl::string_view what) {
    return absl::InternalError(absl::StrCat("source ", source.id.hex(), " ", what));
  };
  if (source.seat != id) return error("has two seats");
  if (committed) return absl::OkStatus();
  if (!source.state || source.state->generation != seat.generation ||
      !Holds(*source.state, seat.node)) {
    return error("is seated at a node that does not hold it");
  }
  return absl::OkStatus();
}

absl::Status SlotTree::CheckSlot(int number) const {
  const Slot& slot = slots_[number];
  const auto error = [number](absl::string_view what) {
    return absl::InternalError(absl::StrCat("slot ", number, " ", what));
  };
  if (slot.closed()) {
    return slot.seats.empty() && !slot.fold.placed() ? absl::OkStatus()
                                                     : error("is closed and used");
  }
  int missing = 0;
  for (const int child : ChildrenOf(number)) {
    if (slots_[child].parent != number) return error("is not the parent of its child");
    missing += slots_[child].fold.placed() ? 0 : 1;
  }
  for (const Seat& seat : slot.seats) missing += seat.source == kNone ? 1 : 0;
  if (missing != slot.missing) return error("miscounts what is missing");
  if (slot.fold.placed() != (missing == 0)) {
    return error(missing == 0 ? "is complete and not placed" : "is incomplete and placed");
  }
  return CheckFolds(number);
}

absl::Status SlotTree::CheckFolds(int number) const {
  const Slot& slot = slots_[number];
  const auto error = [number](absl::string_view what) {
    return absl::InternalError(absl::StrCat("slot ", number, " ", what));
  };
  for (const Seat& seat : slot.seats) {
    const bool elsewhere = seat.source != kNone && seat.node != slot.node;
    if (seat.leaf.placed() != elsewhere || (elsewhere && seat.leaf.node != seat.node)) {
      return error(elsewhere ? "has a source elsewhere and no leaf for it"
                             : "has an unneeded leaf");
    }
  }
  if ((Pinned(number) || Delivering(number)) && slot.node != inputs_.root) {
    return error("is not at the requested root");
  }
  if (slot.missing > 0) return absl::OkStatus();
  if (slot.fold.node != slot.node || !(slot.fold.task == TaskOf(number)) || slot.fold.lost()) {
    return error("is placed with a wrong task or node");
  }
  return absl::OkStatus();
}

}  // namespace phalanx::directory
