// What nodes say that they fold, after a restart of the shard: seats that are kept for it.
#include <algorithm>
#include <set>
#include <utility>
#include <vector>

#include "src/common/defects.h"
#include "src/directory/reduce_plan_impl.h"

namespace phalanx::directory {

void ReducePlan::Restore(int slots, int degree, int slot, absl::Span<const ObjectId> sources,
                         const NodeKey& node, const Generation& version) {
  Impl& plan = *impl_;
  const int most = static_cast<int>(plan.sources.size());
  if (plan.begun || slots < 1 || slots > most || degree < 1 || degree > most || slot < 0) return;
  if (plan.restored_slots == 0) {
    plan.restored_slots = slots;
    plan.restored_degree = degree;
  }
  if (slots != plan.restored_slots || degree != plan.restored_degree) return;
  const int seat = slot / (slots + 1) - 1;
  const bool leaf = seat >= 0;
  if (seat >= most || (leaf && sources.size() != 1)) return;
  Impl::Statement statement;
  statement.node = node;
  statement.version = version;
  for (const ObjectId& id : sources) {
    const int source = plan.Find(id);
    if (source == Impl::kNone || plan.restored_sources.count(source) > 0) return;
    statement.sources.push_back(source);
  }
  if (!plan.restored.try_emplace({slot % (slots + 1), seat}, statement).second) return;
  plan.restored_sources.insert(statement.sources.begin(), statement.sources.end());
}

// A slot has at least the seats that were told of. The others have what is left of them.
ReducePlan::Impl::Layout ReducePlan::Impl::RestoredLayout() const {
  Layout layout;
  layout.degree = restored_degree;
  layout.groups.resize(restored_slots);
  const bool fixed = spec.order == ReduceSpec::Order::kFixed;
  if (fixed && restored_degree != 1) return Layout();
  if (!(fixed ? RestoreRanges(layout) : RestoreSeats(layout))) return Layout();
  RestoreRoot(layout);
  if (DefectActive(Defect::kRestoredSlotGivenAway)) {
    for (Group& group : layout.groups) {
      if (!group.members.empty()) group.members.front().source = kNone;
      if (!group.members.empty()) break;
    }
  }
  for (const Group& group : layout.groups) {
    for (const Group::Member& member : group.members) {
      if (member.source != kNone && Placeable(sources[member.source])) return layout;
    }
  }
  return Layout();
}

bool ReducePlan::Impl::RestoreSeats(Layout& layout) const {
  int left = Wanted();
  // Leaves come with the number of their seat; the slots' own sources have the other seats.
  for (const auto& [where, statement] : restored) {
    const auto [slot, seat] = where;
    if (slot >= restored_slots || seat == kNone) continue;
    auto& members = layout.groups[slot].members;
    const int added = std::max(0, seat + 1 - static_cast<int>(members.size()));
    left -= added;
    if (left < 0) return false;
    members.resize(members.size() + added);
    members[seat] = {statement.sources.front(), statement.node};
  }
  for (const auto& [where, statement] : restored) {
    if (where.first >= restored_slots || where.second != kNone) continue;
    layout.groups[where.first].node = statement.node;
    auto& members = layout.groups[where.first].members;
    size_t seat = 0;
    for (const int source : statement.sources) {
      while (seat < members.size() && members[seat].source != kNone) ++seat;
      if (seat == members.size()) {
        members.emplace_back();
        --left;
      }
      members[seat] = {source, statement.node};
    }
  }
  // One that is no longer so may have been told, too.
  if (left < 0) return false;
  // A seat of which nobody spoke is above nobody's fold, or in a slot below the root: it starts
  // over; or its slot was closed. Those that cannot have been closed come first.
  const ReduceShape tree(restored_slots, restored_degree);
  const std::set<int> closed = ClosedBelow(layout);
  int last = tree.root();
  for (const bool closable : {false, true}) {
    for (int slot = 0; slot < restored_slots; ++slot) {
      auto& members = layout.groups[slot].members;
      const bool may = slot != tree.root() && tree.Children(slot).size() <= 1;
      if (!members.empty() || may != closable || closed.count(slot) > 0) continue;
      if (left == 0 && closable) continue;
      if (left == 0) return false;
      members.emplace_back();
      --left;
      last = slot;
    }
  }
  auto& members = layout.groups[last].members;
  members.resize(members.size() + left);
  return true;
}

// Those that must have been closed: without them what is above has the version that was told.
std::set<int> ReducePlan::Impl::ClosedBelow(const Layout& layout) const {
  const ReduceShape tree(restored_slots, restored_degree);
  const bool delivers = restored.count({restored_slots, kNone}) > 0;
  std::set<int> closed;
  for (const auto& [where, statement] : restored) {
    const int number = where.first;
    if (where.second != kNone || number >= restored_slots) continue;
    std::set<int> unspoken;
    std::map<int, Generation> below;
    for (const int child : tree.Children(number)) {
      int at = child;
      while (at != kNone && restored.count({at, kNone}) == 0) {
        unspoken.insert(at);
        const std::vector<int> next = tree.Children(at);
        at = next.size() == 1 ? next.front() : kNone;
      }
      if (at != kNone) below[at] = restored.at({at, kNone}).version;
    }
    if (unspoken.empty()) continue;
    const bool is_root = number == tree.root() && !delivers;
    if (SlotVersion(number, layout.groups[number], below, is_root) == statement.version) {
      closed.merge(unspoken);
    }
  }
  return closed;
}

// In a fixed order a slot has neighbours in the list.
bool ReducePlan::Impl::RestoreRanges(Layout& layout) const {
  std::vector<int> list;
  for (int i = 0; i < FixedEnd(); ++i) {
    if (!sources[i].failed) list.push_back(i);
  }
  std::map<int, std::map<int, NodeKey>> told;  // by slot: the sources in it
  for (const auto& [where, statement] : restored) {
    if (where.first >= restored_slots) continue;
    if (where.second == kNone) layout.groups[where.first].node = statement.node;
    for (const int source : statement.sources) told[where.first][source] = statement.node;
  }
  size_t next = 0;
  int slot = 0;
  // The slots before `until` take what there is before `end`, one each and the last the rest.
  const auto give = [&](int until, size_t end) {
    for (; slot < until; ++slot) {
      const size_t count = slot + 1 == until && end > next ? end - next : 1;
      for (size_t i = 0; i < count && next < end; ++i, ++next) {
        layout.groups[slot].members.push_back({list[next], NodeKey()});
      }
    }
  };
  for (const auto& [at, members] : told) {
    const auto index = [&](int source) -> size_t {
      return std::lower_bound(list.begin(), list.end(), source) - list.begin();
    };
    give(at, index(members.begin()->first));
    const size_t end = index(members.rbegin()->first) + 1;
    for (; next < std::min(end, list.size()); ++next) {
      const auto it = members.find(list[next]);
      layout.groups[at].members.push_back(
          {list[next], it == members.end() ? NodeKey() : it->second});
    }
    slot = at + 1;
  }
  give(restored_slots, list.size());
  for (; next < list.size(); ++next) layout.groups.back().members.push_back({list[next], {}});
  return std::none_of(layout.groups.begin(), layout.groups.end(),
                      [](const Group& group) { return group.members.empty(); });
}

void ReducePlan::Impl::RestoreRoot(Layout& layout) const {
  if (!root_up || restored.count({restored_slots, kNone}) > 0) return;
  const int root_slot = ReduceShape(restored_slots, restored_degree).root();
  const auto told = restored.find({root_slot, kNone});
  if (told != restored.end()) {
    layout.reserved = told->second.node == root;
    return;
  }
  auto& seat = layout.groups[root_slot].members.front();
  if (spec.order == ReduceSpec::Order::kFixed) {
    const int last = layout.groups.back().members.back().source;
    layout.reserved = AtRoot(sources[last]);
    return;
  }
  for (const auto& [arrival, i] : waiting) {
    if (seat.source != kNone || !AtRoot(sources[i]) || restored_sources.count(i) > 0) continue;
    seat = {i, root};
    layout.reserved = true;
  }
}

}  // namespace phalanx::directory
