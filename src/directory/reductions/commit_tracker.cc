#include "src/directory/reductions/commit_tracker.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace phalanx::directory {

CommitTracker::CommitTracker(const ReductionParts& parts, ReductionCatalog& catalog,
                             SourceWatcher& watcher)
    : context_(parts.context),
      nodes_(parts.nodes),
      gate_(parts.gate),
      objects_(parts.objects),
      catalog_(catalog),
      watcher_(watcher) {}

void CommitTracker::AwaitCommitted(const NodeKey& key) {
  for (const auto& [target, reduction] : catalog_.all()) {
    if (!reduction->told_to_commit.contains(key)) continue;
    reduction->awaited.insert(key);
    reduction->awaited_until = context_.now + context_.options.lease;
    catalog_.SetTimer(*reduction, reduction->awaited_until);
  }
}

bool CommitTracker::AwaitsResult(const Object& object) const {
  const Reduction* reduction = object.adopted ? catalog_.Find(object.id) : nullptr;
  return reduction != nullptr && !reduction->awaited.empty() &&
         reduction->root_generation == object.generation;
}

void CommitTracker::StopAwaiting(Reduction& reduction) {
  absl::btree_set<NodeKey> back;
  for (const NodeKey& key : reduction.awaited) {
    // Who tells what it has just now is heard to the end.
    if (nodes_.Find(key) != nullptr) back.insert(key);
  }
  reduction.awaited = std::move(back);
  reduction.awaited_until =
      reduction.awaited.empty() ? Instant::Infinite() : context_.now + context_.options.lease;
  catalog_.Touch(reduction.target);
  if (Object* object = objects_.Find(reduction.target)) objects_.Reevaluate(*object);
}

void CommitTracker::StopAwaitingOtherLives(const NodeKey& key) {
  for (const auto& [target, reduction] : catalog_.all()) {
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

Reduction::Placed* CommitTracker::PlaceAgain(Reduction& reduction, const NodeKey& node,
                                             const Generation& version) {
  const auto placed = reduction.placed.find({node, version});
  if (placed != reduction.placed.end()) return &placed->second;
  const bool root = reduction.lost_roots.contains(node) && IsRoot(reduction.target, version, node);
  return root ? &reduction.placed[{node, version}] : nullptr;
}

void CommitTracker::CommittedIsBack(Reduction& reduction, const NodeKey& key) {
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

void CommitTracker::ForgetCommitted(Reduction& reduction) {
  reduction.told_to_commit.clear();
  reduction.awaited.clear();
  reduction.awaited_until = Instant::Infinite();
  bool back = false;
  for (const NodeKey& lost : std::exchange(reduction.lost_roots, {})) {
    reduction.plan.OnNodeDown(lost);
    back = back || nodes_.Find(lost) != nullptr;
  }
  // With what they hold.
  if (back) watcher_.TellSources(reduction);
}

void CommitTracker::PlanAgain(Reduction& reduction) {
  reduction.root_generation = Generation();
  reduction.root_ready = false;
  // The plan begins anew, and may have committed another one, when it hears that the root's node is
  // gone.
  const bool hears = reduction.lost_roots.contains(reduction.plan.RootNode());
  ForgetCommitted(reduction);
  if (!hears) reduction.plan.OnResultLost();
}

bool CommitTracker::IsRoot(const ObjectId& target, const Generation& version,
                           const NodeKey& node) const {
  const Reduction* reduction = catalog_.Find(target);
  return reduction != nullptr && reduction->plan.RootVersion() == version &&
         reduction->plan.RootNode() == node;
}

bool CommitTracker::ResultUndecided(const Reduction& reduction) const {
  const Object* object = objects_.Find(reduction.target);
  if (object == nullptr || !object->adopted || !reduction.committed()) return false;
  // Lost, it stays adopted.
  const bool may_be = !object->sealed || object->complete_copies > 0 || object->has_writer() ||
                      !object->unreported_receivers.empty() || gate_.learning();
  return may_be && reduction.root_generation.valid() &&
         object->generation == reduction.root_generation;
}

bool CommitTracker::RootStandsBy(const Reduction& reduction) const {
  Object* object = objects_.Find(reduction.target);
  return object != nullptr && objects_.FindAttempt(*object, reduction.root_generation,
                                                   reduction.root_generation.creator) != nullptr;
}

void CommitTracker::NotePause(Instant until) {
  for (const auto& [target, reduction] : catalog_.all()) {
    if (!reduction->awaited.empty()) {
      reduction->awaited_until = std::max(reduction->awaited_until, until);
    }
  }
}

}  // namespace phalanx::directory
