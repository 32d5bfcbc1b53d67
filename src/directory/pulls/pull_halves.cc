// An object that many nodes pull at once in two trees, each of half its slices.
//
//   one tree of fan-out 1 (a chain)     every link carries the object once; the last of n receivers
//                                       is n hops away
//   one tree of fan-out f               log n hops, but a relay sends the object f times
//   two trees of fan-out 2              log n hops, and every link carries the object once: a node
//                                       relays one half, and is a leaf in the tree of the other
//
// A receiver is placed as a relay first, then as a leaf, so that in each tree the relays are near
// the root. What all of them send is as much as what all receive, with nothing to spare: they are
// placed in pairs, and a node that asks alone waits a moment for others.
//
// Whatever two trees do not provide for (ways around cut pairs) ends them: the object is pulled in
// one tree again, from where each node is.
#include <algorithm>
#include <vector>

#include "src/common/defects.h"
#include "src/common/slice_layout.h"
#include "src/directory/pulls/pull_scheduler.h"

namespace phalanx::directory {

bool PullScheduler::SplitPays(const Object& object, const std::vector<NodeKey>& ready) const {
  if (object.trees.second != nullptr || object.trees.first == nullptr || object.info.slices < 2)
    return false;
  const RelayTree& tree = *object.trees.first;
  const DirectoryOptions& options = context_.options;
  if (ready.size() + tree.feeds() < options.least_in_halves) return false;
  if (tree.keeps_whole() || gate_.learning() || routes_.Has(object)) return false;
  if (object.inline_entry.cached()) return false;
  const bool near = std::any_of(ready.begin(), ready.end(), [this, &object](const NodeKey& key) {
    return object.NamesNear(object.wants.at(key), context_.options.least_near_bytes);
  });
  return !near && planner_.HalvesPay(tree, ready.size(), options.worth_of_halves, context_.now);
}

void PullScheduler::Replant(Object& object, bool in_halves) {
  std::vector<NodeKey> receivers;
  for (const auto& [key, want] : object.wants) receivers.push_back(key);
  for (const NodeKey& key : receivers) Requeue(object, key);
  object.trees = RelayTrees();
  if (!in_halves) return Tree(object).KeepWhole();
  const SliceLayout layout{object.info.size_bytes, static_cast<int>(object.info.slices)};
  const int first_slices = layout.slices / 2;
  const uint64_t first = AllSlices(first_slices);
  const uint64_t first_bytes = layout.Begin(first_slices);
  object.trees.first = std::make_unique<RelayTree>(first_bytes, planner_.visited(), first);
  object.trees.second =
      std::make_unique<RelayTree>(layout.object_bytes - first_bytes, planner_.visited(), ~first);
  for (RelayTree* tree : object.trees.all()) {
    tree->set_fan_out(PullPlanner::kHalves);
    // With so many receivers it is not the first that shows what is slow.
    tree->TakeTrial();
    for (const auto& [key, copy] : object.copies) Join(object, *tree, key, copy);
  }
  // They are many: the first ones wait for no others.
  for (auto& [key, want] : object.wants) want.yields_until = context_.now;
  ++context_.counters.splits;
}

bool PullScheduler::PlanHalves(Object& object) {
  if (object.inline_entry.cached()) return false;
  std::vector<NodeKey> ready;
  Instant due = Instant::Infinite();
  for (const NodeKey& key : Ready(object)) {
    Want& want = object.wants.at(key);
    if (want.not_before > context_.now) {
      objects_.SetTimer(object, want.not_before);
      continue;
    }
    // A writer gets the bytes from its client.
    const auto copy = object.copies.find(key);
    if (copy != object.copies.end() && copy->second.writing()) continue;
    NotePatience(object, *nodes_.Find(key), want);
    due = std::min(due, *want.yields_until);
    ready.push_back(key);
  }
  if (ready.empty()) return true;
  if (due > context_.now) {
    object.trees.placed_at = due;
    objects_.SetTimer(object, due);
    return true;
  }
  const Copy none;
  for (const NodeKey& key : ready) {
    const auto copy = object.copies.find(key);
    const Copy& known = copy != object.copies.end() ? copy->second : none;
    for (RelayTree* tree : object.trees.all()) Join(object, *tree, key, known);
    object.trees.MakeRelay(key);
  }
  // Relays first: a leaf goes below any of them.
  for (const bool as_leaf : {false, true}) {
    for (const NodeKey& key : ready) {
      for (RelayTree* tree : object.trees.all()) {
        RelayTree::Member* member = tree->Find(key);
        const bool leaf = member->role == RelayTree::Role::kRelayOfOther;
        if (leaf != as_leaf || !member->feeds.empty()) continue;
        const PullPlanner::Choice choice = planner_.Choose(*tree, member, context_.now);
        if (choice.sender == nullptr) {
          if (choice.retry_at.infinite() || routes_.Isolated(object, key)) return false;
          // One failure does not end the trees: the sender can be tried again.
          objects_.SetTimer(object, choice.retry_at);
          continue;
        }
        Assign(object, *tree, *nodes_.Find(key), object.wants.at(key), choice);
      }
    }
  }
  // A member without a copy would break the invariants, and the node was assigned no sender.
  for (const NodeKey& key : ready) {
    if (object.copies.contains(key)) continue;
    for (RelayTree* tree : object.trees.all()) tree->Remove(key);
  }
  return true;
}

}  // namespace phalanx::directory
