// When and how the shape of a reduction is fixed, and who is seated then.
#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "src/directory/reduce_plan_impl.h"

namespace phalanx::directory {
namespace {

std::string ZoneAt(const ReduceSource& state, const NodeKey& node) {
  for (const ReduceSource::Holder& holder : state.holders) {
    if (holder.node == node) return holder.zone;
  }
  return "";
}

}  // namespace

void ReducePlan::Impl::Advance() {
  if (held || !Decides() || !EnoughLeft()) return;
  if (mode == Mode::kTree && seated == 0) Unshape();
  if (mode == Mode::kStar && ready == 0) Unshape();
  if (mode == Mode::kUnshaped) {
    if (!FixSize()) return;
    small = StarPays();
    if (small && !TreeRestored()) mode = Mode::kStar;
  }
  const bool enough = ready >= Wanted();
  const bool waits = mode == Mode::kStar || (mode == Mode::kTree && !free.empty());
  if (small && enough && waits && (PlaceStar() || ended)) return;
  if (mode == Mode::kUnshaped || (mode == Mode::kStar && enough)) ShapeTree();
  if (mode != Mode::kTree || ended) return;
  FillSeats();
  if (!ended) Flush();
}

uint64_t ReducePlan::Impl::FoldBytes(const Source& source) const {
  return spec.range_bytes > 0 ? spec.range_bytes : source.state->size_bytes;
}

bool ReducePlan::Impl::Fits(const Source& source) {
  const uint64_t bytes = source.state->size_bytes;
  const std::string what = absl::StrCat("reduction of ", target.hex(), ": source ", source.id.hex(),
                                        " has ", bytes, " bytes");
  if (spec.range_bytes > 0) {
    if (spec.range_offset <= bytes && spec.range_bytes <= bytes - spec.range_offset) return true;
    End(absl::InvalidArgumentError(absl::StrCat(what, ", the range [", spec.range_offset, ", ",
                                                spec.range_offset + spec.range_bytes,
                                                ") is not within")));
    return false;
  }
  if (bytes != size_bytes) {
    End(absl::InvalidArgumentError(
        absl::StrCat(what, ", the first that was placed has ", size_bytes)));
    return false;
  }
  if (const absl::Status whole = CheckWhole(spec.elements, bytes); !whole.ok()) {
    End(absl::InvalidArgumentError(
        absl::StrCat(what, ", no whole number of ", spec.elements.Name(), ": ", whole.message())));
    return false;
  }
  return true;
}

bool ReducePlan::Impl::FixSize() {
  const int end = FixedEnd();
  for (const auto& [arrival, source] : waiting) {
    if (source >= end) continue;
    size_bytes = FoldBytes(sources[source]);
    return Fits(sources[source]);
  }
  return false;
}

// ---- small reductions: everything travels to the root with the order

bool ReducePlan::Impl::StarPays() const {
  const uint64_t slots = Wanted();
  if (size_bytes > kMaxInlineBytes || slots * size_bytes > kMaxStarBytes) return false;
  const int degree = ChooseDegree(static_cast<int>(slots), size_bytes, costs);
  const absl::Duration star =
      absl::Seconds(static_cast<double>(slots * size_bytes) / costs.bytes_per_second);
  // Both begin with an order; a tree's slots ask each other for their outputs then, and its root
  // says when it is ready, and is told to commit.
  const absl::Duration asking = 4 * costs.latency;
  return star <= ReduceTime(static_cast<int>(slots), degree, size_bytes, costs) + asking;
}

// What was told of cannot be one fold with everything.
bool ReducePlan::Impl::TreeRestored() const {
  if (restored.empty()) return false;
  const NodeKey& node = restored.begin()->second.node;
  return restored_slots > 1 || restored.size() > 1 || (root_up && node != root);
}

// Not valid: nobody has any of it.
NodeKey ReducePlan::Impl::StarNode() const {
  if (root_up) return root;
  if (!restored.empty()) return restored.begin()->second.node;
  if (placeable.empty()) return NodeKey();
  return BestHolder(*sources[placeable.begin()->second].state).node;
}

bool ReducePlan::Impl::CountsForStar(int source) const {
  return source < star_end && StarUsable(sources[source], star_node);
}

bool ReducePlan::Impl::StarHasEnough(const NodeKey& node) {
  const int end = FixedEnd();
  if (node != star_node || end != star_end) {
    star_node = node;
    star_end = end;
    star_usable = 0;
    examined += static_cast<uint64_t>(end);
    for (int i = 0; i < end; ++i) star_usable += CountsForStar(i) ? 1 : 0;
  }
  return star_usable >= Wanted();
}

bool ReducePlan::Impl::StarUsable(const Source& source, const NodeKey& node) const {
  return source.state && (source.state->has_inline || HoldsComplete(*source.state, node));
}

// In the order of the fold; too few when it cannot be.
std::vector<int> ReducePlan::Impl::StarSources(const NodeKey& node) const {
  std::vector<int> order;
  const int end = FixedEnd();
  examined += static_cast<uint64_t>(end);
  for (int i = 0; i < end; ++i) {
    if (StarUsable(sources[i], node)) order.push_back(i);
  }
  if (spec.order == ReduceSpec::Order::kFixed) return order;
  std::vector<int> before;
  if (!restored.empty()) before = restored.begin()->second.sources;
  const auto rank = [&](int source) {
    const auto it = std::find(before.begin(), before.end(), source);
    return std::make_pair(it - before.begin(), sources[source].arrival);
  };
  std::sort(order.begin(), order.end(), [&](int a, int b) { return rank(a) < rank(b); });
  if (order.size() > static_cast<size_t>(Wanted())) order.resize(Wanted());
  return order;
}

bool ReducePlan::Impl::PlaceStar() {
  const NodeKey node = StarNode();
  if (!node.valid() || !StarHasEnough(node)) return false;
  const std::vector<int> order = StarSources(node);
  if (order.size() < static_cast<size_t>(Wanted())) return false;
  for (const int source : order) {
    if (!Fits(sources[source])) return false;
  }
  if (mode == Mode::kTree) Unshape();
  mode = Mode::kStar;
  shape.emplace(1, 1);
  FoldTask task = NewTask(0);
  task.root = true;
  task.committed = true;
  for (size_t i = 0; i < order.size(); ++i) {
    Source& source = sources[order[i]];
    const bool held = HoldsComplete(*source.state, node);
    task.inputs.push_back({held ? FoldInput::Kind::kSource : FoldInput::Kind::kInline, source.id,
                           source.state->generation, NodeKey()});
    task.reduced_from.push_back(source.id);
    waiting.erase({source.arrival, order[i]});
    source.slot = 0;
    source.seat = static_cast<int>(i);
  }
  task.version = StarVersion(task, node);
  task.metadata = Metadata();
  Place(star, node, std::move(task));
  committed = true;
  return true;
}

// ---- the tree

bool ReducePlan::Impl::AtRoot(const Source& source) const {
  return root_up && Placeable(source) &&
         (HoldsComplete(*source.state, root) || BestHolder(*source.state).node == root);
}

int ReducePlan::Impl::FixedEnd() const {
  const int all = static_cast<int>(sources.size());
  if (spec.order != ReduceSpec::Order::kFixed) return all;
  if (failed == 0) return Wanted();
  const auto of = std::make_pair(failed, sources.size());
  if (fixed_end_of != of) {
    fixed_end_of = of;
    fixed_end = FindFixedEnd();
  }
  return fixed_end;
}

int ReducePlan::Impl::FindFixedEnd() const {
  const int all = static_cast<int>(sources.size());
  examined += sources.size();
  int left = Wanted();
  int end = 0;
  for (; end < all && left > 0; ++end) left -= sources[end].failed ? 0 : 1;
  return end;
}

void ReducePlan::Impl::ShapeTree() {
  Layout layout;
  if (!restored.empty()) layout = RestoredLayout();
  if (layout.groups.empty()) {
    layout = spec.order == ReduceSpec::Order::kFixed ? FixedLayout() : ArrivedLayout();
  }
  if (layout.groups.empty()) return;
  restored.clear();
  mode = Mode::kTree;
  BuildTree(layout);
}

// Neighbours in the list that are on one node share a slot of the chain.
ReducePlan::Impl::Layout ReducePlan::Impl::FixedLayout() const {
  Layout layout;
  bool any = false;
  NodeKey last;
  const int end = FixedEnd();
  for (int i = 0; i < end; ++i) {
    const Source& source = sources[i];
    if (source.failed) continue;
    NodeKey node;
    if (Placeable(source)) {
      any = true;
      node = AtRoot(source) ? root : BestHolder(*source.state).node;
    }
    if (layout.groups.empty() || !node.valid() || node != last) layout.groups.emplace_back();
    layout.groups.back().members.push_back({i, node});
    last = node;
  }
  if (!any) return Layout();
  layout.reserved = root_up && last == root;
  return layout;
}

// Those on one node share a slot, those in one zone have slots next to each other; what is at the
// root's node is in any case among them, in the tree's root. Slots begin with the node that follows
// the root's, all nodes taken as a circle: of several reductions of the same sources, each with
// another root, each begins elsewhere, so that every node is spared one of them at its link.
ReducePlan::Impl::Layout ReducePlan::Impl::ArrivedLayout() const {
  const int wanted = Wanted();
  Group at_root;
  std::vector<Group> others;
  std::map<NodeKey, size_t> by_node;
  int taken = 0;
  for (const auto& [arrival, i] : waiting) {
    if (taken == wanted || !root_up) break;
    if (!AtRoot(sources[i])) continue;
    at_root.members.push_back({i, root});
    at_root.zone = ZoneAt(*sources[i].state, root);
    ++taken;
  }
  for (const auto& [arrival, i] : waiting) {
    if (taken == wanted) break;
    const Source& source = sources[i];
    if (!Placeable(source) || AtRoot(source)) continue;
    const ReduceSource::Holder& holder = BestHolder(*source.state);
    const auto [group, added] = by_node.try_emplace(holder.node, others.size());
    if (added) others.push_back({{}, holder.zone, {}});
    others[group->second].members.push_back({i, holder.node});
    ++taken;
  }
  if (taken == 0) return Layout();
  const auto place = [&](const Group& group) {
    const NodeKey& node = group.members.front().node;
    return std::make_pair(node < root, node);
  };
  if (root_up) {
    std::sort(others.begin(), others.end(),
              [&](const Group& a, const Group& b) { return place(a) < place(b); });
  }
  std::map<std::string, size_t> zones;
  for (const Group& group : others) zones.try_emplace(group.zone, zones.size());
  // The root's zone comes last: in a chain, next to the root.
  if (!at_root.members.empty()) zones[at_root.zone] = zones.size() + 1;
  std::stable_sort(others.begin(), others.end(), [&](const Group& a, const Group& b) {
    return zones.at(a.zone) < zones.at(b.zone);
  });
  for (; taken < wanted; ++taken) others.push_back({{{}}, "", {}});
  Layout layout;
  layout.groups = std::move(others);
  layout.reserved = !at_root.members.empty();
  const int slots = static_cast<int>(layout.groups.size()) + (layout.reserved ? 1 : 0);
  layout.degree = ChooseDegree(slots, size_bytes, costs);
  if (layout.reserved) {
    const int root_slot = ReduceShape(slots, layout.degree).root();
    layout.groups.insert(layout.groups.begin() + root_slot, std::move(at_root));
  }
  return layout;
}

void ReducePlan::Impl::BuildTree(const Layout& layout) {
  shape.emplace(static_cast<int>(layout.groups.size()), layout.degree);
  reserved = layout.reserved;
  slots.assign(shape->slots() + (root_up && !reserved ? 1 : 0), Slot());
  LinkSlots();
  for (int slot = 0; slot < shape->slots(); ++slot) {
    if (layout.groups[slot].members.empty()) CloseSlot(slot);
  }
  for (int slot = 0; slot < shape->slots(); ++slot) {
    if (slots[slot].closed) continue;
    const Group& group = layout.groups[slot];
    slots[slot].seats.resize(group.members.size());
    slots[slot].missing += static_cast<int>(group.members.size());
    slots[slot].node = Pinned(slot) ? root : group.node;
    for (int seat = 0; seat < static_cast<int>(group.members.size()); ++seat) {
      free.insert({slot, seat});
      const auto& [source, node] = group.members[seat];
      if (source == kNone) continue;
      if (spec.order == ReduceSpec::Order::kFixed) {
        sources[source].home_slot = slot;
        sources[source].home_seat = seat;
      }
      if (!Placeable(sources[source])) continue;
      if (!Fits(sources[source])) return;
      const bool held = Holds(*sources[source].state, node);
      TakeSeat(source, slot, seat,
               held ? node : HolderFor(sources[source], slots[slot], NodeKey()));
    }
  }
}

void ReducePlan::Impl::LinkSlots() {
  if (Delivers()) {
    slots.back().missing = 1;
    slots.back().node = root;
    slots[shape->root()].parent = shape->slots();
    slots[shape->root()].depth = 1;
  }
  std::vector<int> open = {shape->root()};
  while (!open.empty()) {
    const int slot = open.back();
    open.pop_back();
    for (const int child : shape->Children(slot)) {
      slots[child].parent = slot;
      slots[child].depth = slots[slot].depth + 1;
      ++slots[slot].missing;
      open.push_back(child);
    }
  }
}

void ReducePlan::Impl::FillSeats() {
  for (auto it = waiting.begin(); it != waiting.end() && !free.empty();) {
    const int source = it->second;
    ++it;
    const Source& next = sources[source];
    if (!Placeable(next)) continue;
    const bool fixed = spec.order == ReduceSpec::Order::kFixed;
    if (fixed && next.home_slot == kNone) continue;
    if (!Fits(next)) return;
    const auto [slot, seat] =
        fixed ? std::make_pair(next.home_slot, next.home_seat) : SeatFor(next);
    TakeSeat(source, slot, seat, HolderFor(next, slots[slot], NodeKey()));
  }
}

// The first that is free, or another one in the slot that is to fold the source in its stead.
std::pair<int, int> ReducePlan::Impl::SeatFor(const Source& source) {
  const auto [slot, seat] = *free.begin();
  const int host = HostAbove(source, slot);
  if (host == kNone) return {slot, seat};
  CloseSlot(slot);
  const int added = static_cast<int>(slots[host].seats.size());
  slots[host].seats.emplace_back();
  ++slots[host].missing;
  free.insert({host, added});
  return {host, added};
}

// Among the slots above; kNone if there is none.
int ReducePlan::Impl::HostAbove(const Source& source, int slot) const {
  if (!Closable(slot)) return kNone;
  if (Pinned(shape->root()) && AtRoot(source)) return shape->root();
  // Of slots that have yet to be filled those above are empty, too.
  if (!slots[slot].vacated) return kNone;
  for (int at = slots[slot].parent; at != kNone; at = slots[at].parent) {
    const NodeKey& node = slots[at].node;
    const auto there = [&](const Seat& seat) { return seat.source != kNone && seat.node == node; };
    const bool held = HoldsComplete(*source.state, node) || BestHolder(*source.state).node == node;
    if (held && std::any_of(slots[at].seats.begin(), slots[at].seats.end(), there)) return at;
  }
  return kNone;
}

// It has one seat at most, and one slot below it, which can stand in its place.
bool ReducePlan::Impl::Closable(int slot) const {
  return slot != shape->root() && slots[slot].seats.size() <= 1 &&
         shape->Children(slot).size() <= 1;
}

// REQUIRES: Closable(slot), its seat is free, and it is not placed.
void ReducePlan::Impl::CloseSlot(int number) {
  Slot& slot = slots[number];
  const int parent = slot.parent;
  free.erase({number, 0});
  marked.erase({-slot.depth, number});
  const int depth = slot.depth;
  slot = Slot();
  slot.depth = depth;
  slot.closed = true;
  --slots[parent].missing;
  if (const int below = Standing(number); below != kNone) {
    slots[below].parent = parent;
    slots[parent].missing += slots[below].fold.placed ? 0 : 1;
  }
  Mark(parent);
}

void ReducePlan::Impl::Unshape() {
  DropAll();
  examined += sources.size();
  for (int i = 0; i < static_cast<int>(sources.size()); ++i) {
    Source& source = sources[i];
    source.slot = source.seat = source.home_slot = source.home_seat = kNone;
    if (source.arrival != 0) waiting.insert({source.arrival, i});
  }
  slots.clear();
  shape.reset();
  free.clear();
  marked.clear();
  reserved = small = false;
  seated = 0;
  mode = Mode::kUnshaped;
}

}  // namespace phalanx::directory
