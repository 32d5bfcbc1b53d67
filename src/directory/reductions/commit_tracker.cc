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
    if (!reduction->commit.sent_to.contains(key)) continue;
    reduction->commit.awaited.insert(key);
    reduction->commit.awaited_until = context_.now + context_.options.lease;
    // A lease, since a node that is only cut off is back by then or starts a new life.
    catalog_.SetTimer(*reduction, reduction->commit.awaited_until);
  }
}

bool CommitTracker::AwaitsResult(const Object& object) const {
  const Reduction* reduction = object.adopted() ? catalog_.Find(object.id) : nullptr;
  return reduction != nullptr && !reduction->commit.awaited.empty() &&
         reduction->commit.root_generation == object.generation;
}

void CommitTracker::StopAwaiting(Reduction& reduction) {
  absl::btree_set<NodeKey> back;
  for (const NodeKey& key : reduction.commit.awaited) {
    // A node that is registering may register the result yet.
    if (nodes_.Find(key) != nullptr) back.insert(key);
  }
  reduction.commit.awaited = std::move(back);
  reduction.commit.awaited_until = reduction.commit.awaited.empty()
                                       ? Instant::Infinite()
                                       : context_.now + context_.options.lease;
  catalog_.Touch(reduction.target);
  // The object may be lost or void now: AwaitsResult has kept it from that.
  if (Object* object = objects_.Find(reduction.target)) objects_.Reevaluate(*object);
}

void CommitTracker::StopAwaitingOtherLives(const NodeKey& key) {
  for (const auto& [target, reduction] : catalog_.all()) {
    std::vector<NodeKey> ended;
    // A process that was started again has lost its memory, and the result with it.
    for (auto at = reduction->commit.awaited.lower_bound(NodeKey{key.node, 0});
         at != reduction->commit.awaited.end() && at->node == key.node; ++at) {
      if (*at != key) ended.push_back(*at);
    }
    if (ended.empty()) continue;
    for (const NodeKey& life : ended) reduction->commit.awaited.erase(life);
    if (reduction->commit.awaited.empty()) StopAwaiting(*reduction);
  }
}

Reduction::Placed* CommitTracker::PlaceAgain(Reduction& reduction, const NodeKey& node,
                                             const SlotVersion& version) {
  const auto placed = reduction.placed.find({node, version});
  if (placed != reduction.placed.end()) return &placed->second;
  // NodeDown erased the placement, but the plan still counts on this root.
  const bool root =
      reduction.commit.lost_roots.contains(node) && IsRoot(reduction.target, version, node);
  return root ? &reduction.placed[{node, version}] : nullptr;
}

void CommitTracker::CommittedIsBack(Reduction& reduction, const NodeKey& key) {
  if (reduction.placed.contains({key, reduction.plan.RootVersion()}) &&
      reduction.commit.lost_roots.erase(key) != 0) {
    // The root's fold continues on the node. Its other folds were forgotten when the node went
    // down.
    for (const ReducePlan::SlotView& slot : reduction.plan.Look().slots) {
      const bool lost = slot.node == key && slot.version.valid() &&
                        !reduction.placed.contains({key, slot.version});
      if (lost) reduction.plan.OnFoldLost(key, slot.version);
    }
  }
  if (reduction.commit.awaited.erase(key) != 0 && reduction.commit.awaited.empty())
    StopAwaiting(reduction);
}

void CommitTracker::OnReady(Reduction& reduction, const NodeKey& node, const SlotVersion& version) {
  reduction.commit.root_ready = IsRoot(reduction.target, version, node) && RootStandsBy(reduction);
  if (!reduction.commit.root_ready) reduction.plan.OnReady(node, version);
}

void CommitTracker::ForgetCommitted(Reduction& reduction) {
  reduction.commit.sent_to.clear();
  reduction.commit.awaited.clear();
  reduction.commit.awaited_until = Instant::Infinite();
  bool back = false;
  // The plan was not informed while the nodes were awaited; now it places their folds elsewhere.
  for (const NodeKey& lost : std::exchange(reduction.commit.lost_roots, {})) {
    reduction.plan.OnNodeDown(lost);
    back = back || nodes_.Find(lost) != nullptr;
  }
  // The plan dropped the copies on these nodes; those that are back hold them still.
  if (back) watcher_.ReportSources(reduction);
}

void CommitTracker::PlanAgain(Reduction& reduction) {
  reduction.commit.root_generation = Generation();
  reduction.commit.root_ready = false;
  // When the plan hears that the root's node is gone, it starts over by itself and may commit
  // another root: it must not hear of the loss twice.
  const bool hears = reduction.commit.lost_roots.contains(reduction.plan.RootNode());
  ForgetCommitted(reduction);
  if (!hears) reduction.plan.OnResultLost();
}

bool CommitTracker::IsRoot(const ObjectId& target, const SlotVersion& version,
                           const NodeKey& node) const {
  const Reduction* reduction = catalog_.Find(target);
  return reduction != nullptr && reduction->plan.RootVersion() == version &&
         reduction->plan.RootNode() == node;
}

bool CommitTracker::ResultExists(const ObjectId& target, const Generation& generation) const {
  Object* object = objects_.Find(target);
  if (object == nullptr) return false;
  if (object->IsAdopted(generation)) return object->copies.complete() > 0;
  const Standby* standby = object->FindStandby(generation, generation.creator);
  return standby != nullptr && standby->complete;
}

bool CommitTracker::ResultUndecided(const Reduction& reduction) const {
  const Object* object = objects_.Find(reduction.target);
  if (object == nullptr || !object->adopted() || !reduction.committed()) return false;
  // A lost generation stays adopted, so adoption alone does not say that the result can come.
  const bool may_be = !object->sealed() || object->copies.complete() > 0 ||
                      object->copies.writing() > 0 || !object->final_reports.awaited.empty() ||
                      gate_.learning();
  return may_be && reduction.commit.root_generation.valid() &&
         object->generation == reduction.commit.root_generation;
}

bool CommitTracker::RootStandsBy(const Reduction& reduction) const {
  Object* object = objects_.Find(reduction.target);
  return object != nullptr &&
         object->FindStandby(reduction.commit.root_generation,
                             reduction.commit.root_generation.creator) != nullptr;
}

void CommitTracker::NotePause(Instant until) {
  for (const auto& [target, reduction] : catalog_.all()) {
    if (!reduction->commit.awaited.empty()) {
      reduction->commit.awaited_until = std::max(reduction->commit.awaited_until, until);
    }
  }
}

}  // namespace phalanx::directory
