#include "src/directory/reductions/tree_plan/tree_layout.h"

#include <algorithm>
#include <map>
#include <utility>

#include "src/directory/reductions/tree_plan/reduce_shape.h"

namespace phalanx::directory {
namespace {

using Group = TreeLayout::Group;

std::string ZoneAt(const ReduceSource& state, const NodeKey& node) {
  for (const ReduceSource::Holder& holder : state.holders) {
    if (holder.node == node) return holder.zone;
  }
  return "";
}

// Returns the waiting sources that are best at the requested root, at most `wanted`.
Group GroupAtRoot(const PlanInputs& inputs, const SourceTable& sources, int wanted) {
  Group group;
  if (!inputs.root_up) return group;
  for (const auto& [arrival, i] : sources.waiting()) {
    if (static_cast<int>(group.members.size()) == wanted) break;
    if (!sources.AtRoot(sources[i])) continue;
    group.members.push_back({i, inputs.root});
    group.zone = ZoneAt(*sources[i].state, inputs.root);
  }
  return group;
}

// Returns the first `wanted` waiting sources at other nodes, one group for each node.
std::vector<Group> GroupsElsewhere(const SourceTable& sources, int wanted) {
  std::vector<Group> groups;
  std::map<NodeKey, size_t> by_node;
  for (const auto& [arrival, i] : sources.waiting()) {
    if (wanted == 0) break;
    const SourceTable::Source& source = sources[i];
    // Those behind it are slow, too.
    if (sources.HeldBack(source)) break;
    if (!source.seatable() || sources.AtRoot(source)) continue;
    const ReduceSource::Holder& holder = BestHolder(*source.state);
    const auto [group, added] = by_node.try_emplace(holder.node, groups.size());
    // The slot of a node has the place of the first source there.
    if (added) groups.push_back({{}, holder.zone, {}});
    groups[group->second].members.push_back({i, holder.node});
    --wanted;
  }
  return groups;
}

// Puts the sources of slow nodes into the groups of fast ones of their zone, or of all zones if it
// has none. These are dealt out in turn: the first groups first, since the first slot receives
// nothing else. The slow groups that are left are first: several sources of one node are folded
// there.
void GiveSlowOnesHosts(const SourceTable& sources, Group& at_root, std::vector<Group>& groups) {
  const auto slow = [&](const Group& group) {
    return sources[group.members.front().source].slow();
  };
  const auto fast = std::stable_partition(groups.begin(), groups.end(), slow);
  std::vector<Group*> hosts;
  for (auto at = fast; at != groups.end(); ++at) hosts.push_back(&*at);
  if (hosts.empty() && !at_root.members.empty()) hosts.push_back(&at_root);
  if (hosts.empty()) return;
  std::map<std::string, std::vector<Group*>> by_zone;
  for (Group* host : hosts) by_zone[host->zone].push_back(host);
  std::map<const void*, size_t> guests;
  for (auto at = groups.begin(); at != fast; ++at) {
    if (at->members.size() > 1) continue;
    const auto zone = by_zone.find(at->zone);
    const std::vector<Group*>& among = zone == by_zone.end() ? hosts : zone->second;
    among[guests[&among]++ % among.size()]->members.push_back(at->members.front());
    at->members.clear();
  }
  std::erase_if(groups, [](const Group& group) { return group.members.empty(); });
}

// In the order of the circle of nodes within a zone, and the root's zone last.
void SortGroups(const PlanInputs& inputs, const Group& at_root, std::vector<Group>& groups) {
  const auto place = [&](const Group& group) {
    const NodeKey& node = group.members.front().node;
    return std::make_pair(node < inputs.root, node);
  };
  if (inputs.root_up) {
    std::sort(groups.begin(), groups.end(),
              [&](const Group& a, const Group& b) { return place(a) < place(b); });
  }
  std::map<std::string, size_t> zones;
  for (const Group& group : groups) zones.try_emplace(group.zone, zones.size());
  // In a chain the last slots are next to the root: only one hop then leaves the root's zone.
  if (!at_root.members.empty()) zones[at_root.zone] = zones.size() + 1;
  std::stable_sort(groups.begin(), groups.end(), [&](const Group& a, const Group& b) {
    return zones.at(a.zone) < zones.at(b.zone);
  });
}

}  // namespace

TreeLayout FixedLayout(const PlanInputs& inputs, const SourceTable& sources) {
  TreeLayout layout;
  bool any = false;
  NodeKey last;
  const int end = sources.EligibleEnd();
  for (int i = 0; i < end; ++i) {
    const SourceTable::Source& source = sources[i];
    if (source.failed()) continue;
    NodeKey node;
    if (source.seatable()) {
      any = true;
      node = sources.AtRoot(source) ? inputs.root : BestHolder(*source.state).node;
    }
    // A source that is not ready has no node yet, and so a slot of its own.
    if (layout.groups.empty() || !node.valid() || node != last) layout.groups.emplace_back();
    layout.groups.back().members.push_back({i, node});
    last = node;
  }
  if (!any) return TreeLayout();
  // The root of a chain is its last slot.
  layout.root_in_tree = inputs.root_up && last == inputs.root;
  return layout;
}

TreeLayout ArrivalLayout(const PlanInputs& inputs, const SourceTable& sources) {
  const int wanted = sources.wanted();
  Group at_root = GroupAtRoot(inputs, sources, wanted);
  int missing = wanted - static_cast<int>(at_root.members.size());
  TreeLayout layout;
  layout.groups = GroupsElsewhere(sources, missing);
  for (const Group& group : layout.groups) missing -= static_cast<int>(group.members.size());
  if (missing == wanted) return TreeLayout();
  SortGroups(inputs, at_root, layout.groups);
  GiveSlowOnesHosts(sources, at_root, layout.groups);
  // Missing sources get the last slots: the early sources are then in the first subtrees, whose
  // bytes move while the plan waits for the others.
  for (; missing > 0; --missing) layout.groups.push_back({{{}}, "", {}});
  layout.root_in_tree = !at_root.members.empty();
  const int slots = static_cast<int>(layout.groups.size()) + (layout.root_in_tree ? 1 : 0);
  layout.degree = ChooseDegree(slots, inputs.size_bytes, inputs.costs);
  if (layout.root_in_tree) {
    const int root_slot = ReduceShape(slots, layout.degree).root();
    layout.groups.insert(layout.groups.begin() + root_slot, std::move(at_root));
  }
  return layout;
}

}  // namespace phalanx::directory
