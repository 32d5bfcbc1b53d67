// Nodes that were told to commit a result and are gone.
//
// Such a node may have sealed the result and answered its own clients before it was fenced, without
// the shard's hearing of it: 30 ms without a connection are enough for that. So a result that was
// told to be committed is not given up with its node, and nothing else is computed in its place,
// until the node is back and has told what it has, or another life of it is there, or a lease has
// passed.
#include <utility>
#include <vector>

#include "src/directory/directory_core_impl.h"

namespace phalanx::directory {

void DirectoryCore::Impl::AwaitCommitted(const NodeKey& key) {
  for (auto& [target, reduction] : reductions_) {
    if (!reduction->told_to_commit.contains(key)) continue;
    reduction->awaited.insert(key);
    reduction->awaited_until = now_ + options_.lease;
    SetReduceTimer(*reduction, reduction->awaited_until);
  }
}

bool DirectoryCore::Impl::AwaitsResult(const Object& object) const {
  if (!object.adopted || reductions_.empty()) return false;
  const auto found = reductions_.find(object.id);
  return found != reductions_.end() && !found->second->awaited.empty() &&
         found->second->root_generation == object.generation;
}

void DirectoryCore::Impl::StopAwaiting(Reduction& reduction) {
  absl::btree_set<NodeKey> back;
  for (const NodeKey& key : reduction.awaited) {
    // Who tells what it has just now is heard to the end.
    if (FindNode(key) != nullptr) back.insert(key);
  }
  reduction.awaited = std::move(back);
  reduction.awaited_until = reduction.awaited.empty() ? Instant::Infinite() : now_ + options_.lease;
  TouchReduction(reduction.target);
  if (Object* object = FindObject(reduction.target)) Settle(*object);
}

void DirectoryCore::Impl::StopAwaitingOtherLives(const NodeKey& key) {
  for (auto& [target, reduction] : reductions_) {
    std::vector<NodeKey> ended;
    for (auto at = reduction->awaited.lower_bound(NodeKey{key.node, 0});
         at != reduction->awaited.end() && at->node == key.node; ++at) {
      if (*at != key) ended.push_back(*at);
    }
    if (ended.empty()) continue;
    for (const NodeKey& life : ended) reduction->awaited.erase(life);
    if (reduction->awaited.empty()) StopAwaiting(*reduction);
  }
}

Reduction::Placed* DirectoryCore::Impl::PlaceAgain(Reduction& reduction, const NodeKey& node,
                                                   const Generation& version) {
  const auto placed = reduction.placed.find({node, version});
  if (placed != reduction.placed.end()) return &placed->second;
  const bool root = reduction.lost_roots.contains(node) && IsRoot(reduction.target, version, node);
  return root ? &reduction.placed[{node, version}] : nullptr;
}

void DirectoryCore::Impl::CommittedIsBack(Reduction& reduction, const NodeKey& key) {
  if (reduction.placed.contains({key, reduction.plan.RootVersion()}) &&
      reduction.lost_roots.erase(key) != 0) {
    // The root goes on there. What else of it was there was forgotten with the node.
    for (const ReducePlan::SlotView& slot : reduction.plan.Look().slots) {
      const bool lost = slot.node == key && slot.version.valid() &&
                        !reduction.placed.contains({key, slot.version});
      if (lost) reduction.plan.OnFoldLost(key, slot.version);
    }
  }
  if (reduction.awaited.erase(key) != 0 && reduction.awaited.empty()) StopAwaiting(reduction);
}

void DirectoryCore::Impl::ForgetCommitted(Reduction& reduction) {
  reduction.told_to_commit.clear();
  reduction.awaited.clear();
  reduction.awaited_until = Instant::Infinite();
  bool back = false;
  for (const NodeKey& lost : std::exchange(reduction.lost_roots, {})) {
    reduction.plan.OnNodeDown(lost);
    back = back || FindNode(lost) != nullptr;
  }
  // With what they hold.
  if (back) TellSources(reduction);
}

void DirectoryCore::Impl::BeginAnew(Reduction& reduction) {
  reduction.root_generation = Generation();
  reduction.root_ready = false;
  // The plan begins anew, and may have committed another one, when it hears that the root's node is
  // gone.
  const bool hears = reduction.lost_roots.contains(reduction.plan.RootNode());
  ForgetCommitted(reduction);
  if (!hears) reduction.plan.OnResultLost();
}

}  // namespace phalanx::directory
