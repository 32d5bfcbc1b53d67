// Seats, folds and versions.
//
// Invariants between calls of Flush
//  1. A fold that is placed has its whole subtree placed; so to lower a slot is to drop it and the
//     placed ones above it, up to the first that is not.
//  2. `missing` of a slot is its empty seats and its children that are not placed.
//  3. A slot is marked whenever what it folds, or from where, may have changed.
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "src/common/defects.h"
#include "src/common/version.h"
#include "src/directory/reduce_plan_impl.h"

namespace phalanx::directory {
namespace {

void Append(std::string& text, uint64_t value) {
  for (int i = 0; i < 8; ++i) text.push_back(static_cast<char>(value >> (8 * i)));
}

void Append(std::string& text, const Generation& generation) {
  Append(text, generation.creator.node);
  Append(text, generation.creator.incarnation);
  Append(text, generation.sequence);
}

void AppendSource(std::string& text, const ObjectId& id, const Generation& generation) {
  text.push_back('o');
  text.append(id.binary().data(), id.binary().size());
  Append(text, generation);
}

void AppendSlot(std::string& text, const Generation& version) {
  text.push_back('v');
  Append(text, version);
}

// A node is never 0, so that the version is valid wherever a generation is.
Generation HashOf(const std::string& text) {
  const XXH128_hash_t hash = XXH3_128bits(text.data(), text.size());
  return VersionOfHash(hash.low64, hash.high64);
}

}  // namespace

bool ReducePlan::Impl::Holds(const ReduceSource& state, const NodeKey& node) {
  return std::any_of(state.holders.begin(), state.holders.end(),
                     [&](const ReduceSource::Holder& holder) { return holder.node == node; });
}

bool ReducePlan::Impl::HoldsComplete(const ReduceSource& state, const NodeKey& node) {
  return std::any_of(
      state.holders.begin(), state.holders.end(),
      [&](const ReduceSource::Holder& holder) { return holder.node == node && holder.complete; });
}

const ReduceSource::Holder& ReducePlan::Impl::BestHolder(const ReduceSource& state) {
  for (const ReduceSource::Holder& holder : state.holders) {
    if (holder.complete) return holder;
  }
  return state.holders.front();
}

// One that spares a leaf if there is one; `but` only when there is no other.
NodeKey ReducePlan::Impl::HolderFor(const Source& source, const Slot& slot,
                                    const NodeKey& but) const {
  const ReduceSource& state = *source.state;
  if (slot.node.valid() && slot.node != but && HoldsComplete(state, slot.node)) return slot.node;
  for (const Seat& seat : slot.seats) {
    if (seat.source != kNone && seat.node != but && HoldsComplete(state, seat.node))
      return seat.node;
  }
  const ReduceSource::Holder* best = nullptr;
  for (const ReduceSource::Holder& holder : state.holders) {
    if (holder.node == but) continue;
    if (best == nullptr || (holder.complete && !best->complete)) best = &holder;
  }
  return best == nullptr ? but : best->node;
}

bool ReducePlan::Impl::Pinned(int slot) const {
  return reserved && root_up && slot == shape->root();
}

std::vector<int> ReducePlan::Impl::ChildrenOf(int slot) const {
  if (slot == shape->slots()) return {shape->root()};
  std::vector<int> children;
  for (const int child : shape->Children(slot)) {
    if (const int standing = Standing(child); standing != kNone) children.push_back(standing);
  }
  return children;
}

int ReducePlan::Impl::Standing(int slot) const {
  while (slots[slot].closed) {
    const std::vector<int> below = shape->Children(slot);
    if (below.empty()) return kNone;
    slot = below.front();
  }
  return slot;
}

void ReducePlan::Impl::Mark(int slot) {
  if (slot != kNone && !slots[slot].closed) marked.insert({-slots[slot].depth, slot});
}

void ReducePlan::Impl::TakeSeat(int source, int slot, int seat, const NodeKey& node) {
  Source& taker = sources[source];
  if (!DefectActive(Defect::kSpareTakenTwice)) waiting.erase({taker.arrival, source});
  taker.slot = slot;
  taker.seat = seat;
  Seat& taken = slots[slot].seats[seat];
  taken.source = source;
  taken.generation = taker.state->generation;
  taken.node = node;
  if (DefectActive(Defect::kSlotAcrossNodes) && slots[slot].node.valid()) {
    taken.node = slots[slot].node;
  }
  free.erase({slot, seat});
  --slots[slot].missing;
  ++seated;
  Mark(slot);
}

void ReducePlan::Impl::LeaveSeat(int slot, int seat) {
  Seat& left = slots[slot].seats[seat];
  Drop(left.leaf);
  Lower(slot);
  Source& source = sources[left.source];
  source.slot = source.seat = kNone;
  if (source.arrival != 0) waiting.insert({source.arrival, left.source});
  left = Seat();
  if (!DefectActive(Defect::kSeatMiscountedAfterLoss)) ++slots[slot].missing;
  --seated;
  slots[slot].vacated = true;
  free.insert({slot, seat});
  Mark(slot);
}

// Whether what its seat stands for is where it was; if not, it moves, or leaves.
void ReducePlan::Impl::Recheck(int source) {
  const Source& it = sources[source];
  if (it.slot == kNone) return;
  Slot& slot = slots[it.slot];
  Seat& seat = slot.seats[it.seat];
  const bool same = it.state && (it.state->generation == seat.generation ||
                                 DefectActive(Defect::kNewAttemptNotNoticed));
  if (!same || it.state->holders.empty()) {
    LeaveSeat(it.slot, it.seat);
  } else if (!Holds(*it.state, seat.node)) {
    seat.node = HolderFor(it, slot, seat.node);
    Mark(it.slot);
  }
}

// To another node that holds all that the fold itself takes from `from`, if there is one.
void ReducePlan::Impl::MoveFold(int number, const NodeKey& from) {
  const int row = shape->slots() + 1;
  const int at = number % row;
  Slot& slot = slots[at];
  Mark(at);
  if (number >= row) {
    Seat& seat = slot.seats[number / row - 1];
    if (seat.source != kNone) seat.node = HolderFor(sources[seat.source], slot, from);
    return;
  }
  if (Pinned(at)) return;
  std::vector<Seat*> own;
  for (Seat& seat : slot.seats) {
    if (seat.source != kNone && seat.node == from) own.push_back(&seat);
  }
  if (own.empty()) return;
  for (const ReduceSource::Holder& holder : sources[own.front()->source].state->holders) {
    const bool all = std::all_of(own.begin(), own.end(), [&](const Seat* seat) {
      return Holds(*sources[seat->source].state, holder.node);
    });
    if (!all || holder.node == from) continue;
    for (Seat* seat : own) seat->node = holder.node;
    return;
  }
}

void ReducePlan::Impl::EmitDrop(const Fold& fold) {
  if (fold.gone) return;
  effects.emplace_back(DropFold{fold.node, fold.task.version});
  if (!fold.task.root) return;
  if (dropped_roots.size() >= kMaxDroppedRoots) dropped_roots.clear();
  dropped_roots.insert({fold.node, fold.task.version});
}

void ReducePlan::Impl::Drop(Fold& fold) {
  if (!fold.placed) return;
  if (!DefectActive(Defect::kFoldLeftBehind)) EmitDrop(fold);
  placed.erase(fold.task.version);
  fold = Fold();
}

void ReducePlan::Impl::Lower(int slot) {
  while (slot != kNone && slots[slot].fold.placed) {
    Drop(slots[slot].fold);
    slot = slots[slot].parent;
    if (slot != kNone) ++slots[slot].missing;
    if (DefectActive(Defect::kAncestorsNotLowered)) return;
  }
}

void ReducePlan::Impl::DropAll() {
  for (auto slot = slots.rbegin(); slot != slots.rend(); ++slot) {
    Drop(slot->fold);
    for (Seat& seat : slot->seats) Drop(seat.leaf);
  }
  Drop(star);
}

void ReducePlan::Impl::Flush() {
  while (!marked.empty()) {
    const int slot = marked.begin()->second;
    marked.erase(marked.begin());
    Refresh(slot);
  }
}

void ReducePlan::Impl::Refresh(int number) {
  Slot& slot = slots[number];
  const auto at_slot = [&](const Seat& seat) {
    return seat.source != kNone && seat.node == slot.node;
  };
  if (Pinned(number) || number == shape->slots()) {
    slot.node = root;
  } else if (!std::any_of(slot.seats.begin(), slot.seats.end(), at_slot)) {
    const auto first = std::find_if(slot.seats.begin(), slot.seats.end(),
                                    [](const Seat& seat) { return seat.source != kNone; });
    slot.node = first == slot.seats.end() ? NodeKey() : first->node;
  }
  for (int seat = 0; seat < static_cast<int>(slot.seats.size()); ++seat) {
    RefreshLeaf(number, seat);
  }
  if (slot.missing > 0) return;
  FoldTask task = TaskOf(number);
  // A source has come to the slot's node, or has left it for a leaf.
  if (slot.fold.placed && slot.fold.task.version != task.version) Lower(number);
  const bool was_placed = slot.fold.placed;
  if (!Place(slot.fold, slot.node, std::move(task))) return;
  if (slot.parent != kNone && !was_placed) --slots[slot.parent].missing;
  if (was_placed && DefectActive(Defect::kMovedFoldKeepsSender)) return;
  Mark(slot.parent);
}

void ReducePlan::Impl::RefreshLeaf(int slot, int seat) {
  Seat& it = slots[slot].seats[seat];
  if (it.source == kNone || it.node == slots[slot].node) {
    Drop(it.leaf);
  } else {
    Place(it.leaf, it.node, LeafTaskOf(slot, seat));
  }
}

bool ReducePlan::Impl::Place(Fold& fold, const NodeKey& node, FoldTask task) {
  const bool there = fold.placed && !fold.lost && fold.node == node;
  if (there && fold.task == task) return false;
  const bool moved = !fold.placed || fold.node != node;
  if (fold.placed && fold.node != node) EmitDrop(fold);
  placed[task.version] = task.slot;
  if (task.root && task.version != last_root) {
    last_root = task.version;
    ++epoch;
  }
  effects.emplace_back(PlaceFold{node, task});
  fold.placed = true;
  fold.lost = fold.gone = false;
  fold.node = node;
  fold.task = std::move(task);
  return moved;
}

FoldTask ReducePlan::Impl::NewTask(int number) const {
  FoldTask task;
  task.slot = number;
  task.slots = shape->slots();
  task.degree = shape->degree();
  task.size_bytes = size_bytes;
  task.planned = Wanted();
  return task;
}

std::string ReducePlan::Impl::VersionText(bool root) const {
  std::string text = "phalanx fold 1";
  text.append(target.binary().data(), target.binary().size());
  for (const uint64_t value :
       {static_cast<uint64_t>(spec.elements.dtype), static_cast<uint64_t>(spec.op),
        static_cast<uint64_t>(Wanted()), spec.range_offset, spec.range_bytes, size_bytes,
        static_cast<uint64_t>(root)}) {
    Append(text, value);
  }
  Append(text, spec.elements.runs.size());
  for (const ElementRun& run : spec.elements.runs) {
    Append(text, run.end);
    Append(text, static_cast<uint64_t>(run.dtype));
  }
  return text;
}

FoldTask ReducePlan::Impl::TaskOf(int number) const {
  const Slot& slot = slots[number];
  FoldTask task = NewTask(number);
  task.root = number == TreeRoot();
  std::string text = VersionText(task.root);
  const std::vector<int> children = ChildrenOf(number);
  const auto add_child = [&](int child) {
    const Fold& fold = slots[child].fold;
    task.inputs.push_back({FoldInput::Kind::kSlot, ObjectId(), fold.task.version, fold.node});
    AppendSlot(text, fold.task.version);
  };
  // What would be below the first child is below it if that is closed, or nothing is.
  const bool first = !children.empty() && children.front() < number;
  if (first) add_child(children.front());
  for (const Seat& seat : slot.seats) {
    const ObjectId& id = sources[seat.source].id;
    if (seat.node == slot.node) {
      task.inputs.push_back({FoldInput::Kind::kSource, id, seat.generation, NodeKey()});
      AppendSource(text, id, seat.generation);
    } else {
      const Generation& version = seat.leaf.task.version;
      task.inputs.push_back({FoldInput::Kind::kSlot, ObjectId(), version, seat.leaf.node});
      AppendSlot(text, version);
    }
  }
  for (size_t i = first ? 1 : 0; i < children.size(); ++i) add_child(children[i]);
  if (!task.root) {
    task.version = HashOf(text);
    return task;
  }
  task.version = RootVersion(std::move(text), slot.node);
  // Slots are numbered in the order of the fold.
  for (const Slot& each : slots) {
    for (const Seat& seat : each.seats) task.reduced_from.push_back(sources[seat.source].id);
  }
  task.metadata = Metadata();
  return task;
}

std::string ReducePlan::Impl::Metadata() const {
  // A part of what it describes is something else.
  if (spec.range_bytes > 0) return "";
  for (const Source& source : sources) {
    if (source.slot != kNone && source.state && !source.state->metadata.empty()) {
      return source.state->metadata;
    }
  }
  return "";
}

FoldTask ReducePlan::Impl::LeafTaskOf(int slot, int seat) const {
  const Seat& it = slots[slot].seats[seat];
  const ObjectId& id = sources[it.source].id;
  FoldTask task = NewTask(LeafNumber(slot, seat));
  task.inputs.push_back({FoldInput::Kind::kSource, id, it.generation, NodeKey()});
  task.version = LeafVersion(id, it.generation);
  return task;
}

Generation ReducePlan::Impl::LeafVersion(const ObjectId& id, const Generation& generation) const {
  std::string text = VersionText(false);
  AppendSource(text, id, generation);
  return HashOf(text);
}

// Of a slot with such seats above such slots, as TaskOf has it.
Generation ReducePlan::Impl::SlotVersion(int number, const Group& group,
                                         const std::map<int, Generation>& below,
                                         bool is_root) const {
  std::string text = VersionText(is_root);
  auto child = below.begin();
  for (; child != below.end() && child->first < number; ++child) AppendSlot(text, child->second);
  for (const Group::Member& member : group.members) {
    if (member.source == kNone || !sources[member.source].state) return Generation();
    const Source& source = sources[member.source];
    if (member.node == group.node) {
      AppendSource(text, source.id, source.state->generation);
    } else {
      AppendSlot(text, LeafVersion(source.id, source.state->generation));
    }
  }
  for (; child != below.end(); ++child) AppendSlot(text, child->second);
  return HashOf(text);
}

Generation ReducePlan::Impl::StarVersion(const FoldTask& task, const NodeKey& node) const {
  std::string text = VersionText(true);
  for (const FoldInput& input : task.inputs) {
    text.push_back(input.kind == FoldInput::Kind::kInline ? 'i' : 'h');
    AppendSource(text, input.source, input.generation);
  }
  return RootVersion(std::move(text), node);
}

Generation ReducePlan::Impl::RootVersion(std::string text, const NodeKey& node) const {
  Generation version = HashOf(text);
  while (dropped_roots.count({node, version}) > 0) {
    text.push_back('+');
    version = HashOf(text);
  }
  return version;
}

}  // namespace phalanx::directory
