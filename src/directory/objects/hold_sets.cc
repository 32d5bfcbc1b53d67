#include "src/directory/objects/hold_sets.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "src/common/defects.h"

namespace phalanx::directory {

void HoldSets::Hold(const NodeKey& key, const ObjectId& id) {
  Node& node = nodes_[key];
  // The new session confirms a hold of an earlier one: its number of holders is unchanged.
  if (node.stale.erase(id) != 0) {
    node.ids.insert(id);
    return;
  }
  if (node.ids.contains(id)) return;
  // An object whose hold is not recorded must not be freed: the mark makes complete() false.
  if (holds_ >= max_holds_) {
    ever_too_many_ = node.more = true;
    return;
  }
  node.ids.insert(id);
  ++holds_;
  ++holders_[id];
}

void HoldSets::Unhold(const NodeKey& key, const ObjectId& id) {
  const auto node = nodes_.find(key);
  if (node == nodes_.end()) return;
  // A node that releases a stale hold before its registration ends releases it for good. A hold
  // that was not recorded (`more`) is in neither set.
  if (node->second.ids.erase(id) + node->second.stale.erase(id) != 0) Drop(id);
}

void HoldSets::Drop(const ObjectId& id) {
  --holds_;
  const auto holders = holders_.find(id);
  if (--holders->second > 0) return;
  holders_.erase(holders);
  unheld_.push_back(id);
}

void HoldSets::DropAll(const absl::flat_hash_set<ObjectId>& ids) {
  // In order of ids: the core frees objects in this order, and a run must replay exactly.
  std::vector<ObjectId> sorted(ids.begin(), ids.end());
  std::sort(sorted.begin(), sorted.end());
  for (const ObjectId& id : sorted) Drop(id);
}

void HoldSets::SetUntil(const NodeKey& key, Node& node, Instant until) {
  if (!node.until.infinite()) ending_.erase({node.until, key});
  node.until = until;
  if (!until.infinite()) ending_.insert({until, key});
}

void HoldSets::SessionBegins(const NodeKey& key) {
  Node& node = nodes_[key];
  // A node with a session has no deadline.
  SetUntil(key, node, Instant::Infinite());
  // Holds of two earlier sessions can be stale at once if the node's registration never ended.
  node.more_stale = node.more_stale || std::exchange(node.more, false);
  if (node.stale.empty()) {
    std::swap(node.stale, node.ids);
  } else {
    node.stale.insert(node.ids.begin(), node.ids.end());
    node.ids.clear();
  }
}

void HoldSets::Registered(const NodeKey& key) {
  const auto node = nodes_.find(key);
  if (node == nodes_.end()) return;
  node->second.more_stale = false;
  DropAll(std::exchange(node->second.stale, {}));
}

void HoldSets::SessionEnds(const NodeKey& key, Instant until) {
  const auto node = nodes_.find(key);
  if (node == nodes_.end()) return;
  SetUntil(key, node->second, until);
}

void HoldSets::Expire(Instant now) {
  while (!ending_.empty() && ending_.begin()->first <= now) {
    const auto node = nodes_.find(ending_.begin()->second);
    // The defect leaks the holds of dead nodes, to show that the tests notice it.
    ending_.erase(ending_.begin());
    if (DefectActive(Defect::kDeadNodeHolds)) continue;
    DropAll(node->second.ids);
    DropAll(node->second.stale);
    nodes_.erase(node);
  }
}

void HoldSets::Postpone(Instant until) {
  // Terminates: each round moves the earliest deadline to `until`.
  while (!ending_.empty() && ending_.begin()->first < until) {
    const NodeKey key = ending_.begin()->second;
    SetUntil(key, nodes_.at(key), until);
  }
}

Instant HoldSets::NextDeadline() const {
  return ending_.empty() ? Instant::Infinite() : ending_.begin()->first;
}

uint32_t HoldSets::Holders(const ObjectId& id) const {
  const auto holders = holders_.find(id);
  return holders == holders_.end() ? 0 : holders->second;
}

bool HoldSets::HeldBy(const NodeKey& key, const ObjectId& id) const {
  const auto node = nodes_.find(key);
  return node != nodes_.end() && (node->second.ids.contains(id) || node->second.stale.contains(id));
}

bool HoldSets::complete() const {
  // In the usual case no hold was ever left out, and the nodes need no scan.
  return !ever_too_many_ || std::none_of(nodes_.begin(), nodes_.end(), [](const auto& node) {
    return node.second.more || node.second.more_stale;
  });
}

std::vector<ObjectId> HoldSets::TakeUnheld() { return std::exchange(unheld_, {}); }

absl::Status HoldSets::CheckInvariants() const {
  size_t holds = 0;
  for (const auto& [key, node] : nodes_) {
    holds += node.ids.size() + node.stale.size();
    for (const ObjectId& id : node.ids) {
      if (node.stale.contains(id)) return absl::InternalError("a hold counts twice");
      if (!holders_.contains(id)) return absl::InternalError("a hold does not count");
    }
  }
  size_t counted = 0;
  for (const auto& [id, holders] : holders_) counted += holders;
  if (holds == holds_ && counted == holds_) return absl::OkStatus();
  return absl::InternalError(
      absl::StrCat("holds are miscounted: ", holds, ", ", counted, ", ", holds_));
}

}  // namespace phalanx::directory
