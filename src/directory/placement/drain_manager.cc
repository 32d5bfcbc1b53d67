#include "src/directory/placement/drain_manager.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace phalanx::directory {
namespace {

// Objects of one draining node that other nodes fetch at a time.
constexpr size_t kMaxFetches = 64;
// Nodes compared when a target is chosen.
constexpr size_t kMaxTargetsCompared = 64;
// Objects without a target that one turn passes over.
constexpr size_t kMaxPassedOver = 64;

}  // namespace

void DrainManager::SoleCopies::Erase(const ObjectId& id) {
  fetching.erase(id);
  queued.erase(id);
  stuck.erase(id);
}

bool DrainManager::OnDrain(Node& node) {
  if (const auto known = draining_.find(node.key); known != draining_.end()) {
    // The node may have missed the last DrainStatus: it is sent again.
    known->second.reported.reset();
    return false;
  }
  SoleCopies& sole = draining_[node.key];
  SetDraining(node, true);
  StartFetches(sole);
  return true;
}

void DrainManager::SetDraining(Node& node, bool draining) {
  // First: OnCopiesChanged counts the copies of nodes that stay.
  node.draining = draining;
  for (const ObjectId& id : Sorted(node.objects)) {
    Object* object = objects_.Find(id);
    if (object == nullptr) continue;
    for (RelayTree* tree : object->trees.all()) {
      if (RelayTree::Member* member = tree->Find(node.key)) tree->SetDraining(member, draining);
    }
    // Another node is asked for what this one was to fetch: its copy would leave with it.
    OnNodeLeft(*object, node.key);
    OnCopiesChanged(*object);
  }
}

void DrainManager::NodeDown(const NodeKey& node) {
  draining_.erase(node);
  // Refusals matter to drains only; without one they would be kept for nothing.
  if (draining_.empty()) refusals_.clear();
}

void DrainManager::SessionBegins(Node& node) {
  if (draining_.erase(node.key) != 0) SetDraining(node, false);
  if (draining_.empty()) refusals_.clear();
}

bool DrainManager::StaysElsewhere(const Object& object) const {
  return std::any_of(object.copies.begin(), object.copies.end(), [this](const auto& entry) {
    const auto& [key, copy] = entry;
    // A delivered copy is not counted: its node may have no memory for it and withdraw it.
    const Node* node = copy.state() == CopyState::kComplete ? nodes_.Find(key) : nullptr;
    return node != nullptr && !node->draining;
  });
}

void DrainManager::OnCopiesChanged(Object& object) {
  // Called for every change of every copy, so the usual case must cost nothing.
  if (draining_.empty() && !object.drain_target.valid()) return;
  const bool elsewhere = StaysElsewhere(object);
  bool wanted = false;
  for (auto& [key, leaving] : draining_) {
    const auto copy = object.copies.find(key);
    const bool sole =
        object.adopted() && !elsewhere && copy != object.copies.end() && copy->second.complete();
    wanted = wanted || sole;
    if (!sole) {
      leaving.Erase(object.id);
    } else if (!leaving.fetching.contains(object.id) && !leaving.stuck.contains(object.id)) {
      leaving.queued.insert(object.id);
    }
  }
  if (!wanted) refusals_.erase(object.id);
  if (!wanted && object.drain_target.valid()) {
    const NodeKey target = std::exchange(object.drain_target, NodeKey());
    objects_.UnlinkNodeIfUnused(target, object);
  }
}

void DrainManager::OnNodeLeft(Object& object, const NodeKey& node) {
  if (object.drain_target != node) return;
  object.drain_target = NodeKey();
  objects_.UnlinkNodeIfUnused(node, object);
  // Several draining nodes can share the target: each must queue the object again.
  for (auto& [key, leaving] : draining_) {
    if (leaving.fetching.erase(object.id) != 0) leaving.queued.insert(object.id);
  }
}

void DrainManager::OnTimer(const Object& object) {
  for (auto& [key, leaving] : draining_) {
    if (leaving.stuck.erase(object.id) != 0) leaving.queued.insert(object.id);
  }
}

void DrainManager::OnReleased(const Object& object) {
  refusals_.erase(object.id);
  if (Node* target = nodes_.Find(object.drain_target)) target->objects.erase(object.id);
  for (auto& [key, leaving] : draining_) leaving.Erase(object.id);
}

void DrainManager::OnRefused(Object& object, const NodeKey& node) {
  if (object.drain_target != node) return;
  refusals_[object.id].Add(node, context_.now);
  OnNodeLeft(object, node);
}

void DrainManager::OnRoomFreed() {
  if (!draining_.empty()) RetryAll();
}

bool DrainManager::HasRefused(const Object& object, const NodeKey& key) const {
  // The node waits for memory: another Fetch would change nothing.
  const auto want = object.wants.find(key);
  if (want != object.wants.end() && object.LacksRoom(want->second)) return true;
  const auto of_object = refusals_.find(object.id);
  return of_object != refusals_.end() && of_object->second.Has(key, context_.now);
}

// When the pause of the first refusing node ends, the object's timer queues it again (OnTimer).
void DrainManager::AwaitRefusers(Object& object) {
  const auto of_object = refusals_.find(object.id);
  if (of_object != refusals_.end()) {
    objects_.SetTimer(object, of_object->second.NextEnd(context_.now));
  }
}

Node* DrainManager::ChooseTarget(const Object& object) {
  // A node with a delivered copy probably has the bytes, and needs no room for them.
  if (Node* node = object.FindUnconfirmed(nodes_, NodeKey())) return node;
  Node* best = nullptr;
  uint64_t most_room = 0;
  size_t compared = 0;
  // Begins at another node for each object, so that a large cluster does not always use the same
  // few; the same in every replay.
  const auto& nodes = nodes_.all();
  auto at = nodes.lower_bound(NodeKey{object.id.ShardHash(), 0});
  for (size_t i = 0; i < nodes.size() && compared < kMaxTargetsCompared; ++i, ++at) {
    if (at == nodes.end()) at = nodes.begin();
    Node& node = *at->second;
    if (!node.connected || node.draining || node.registering) continue;
    ++compared;
    if (HasRefused(object, node.key)) continue;
    // A node that does not report a capacity is assumed to hold anything.
    const uint64_t capacity = node.info.capacity_bytes();
    const uint64_t used = std::min(capacity, node.info.used_bytes());
    const uint64_t room = capacity == 0 ? kMaxObjectBytes : capacity - used;
    if (room < object.info.size_bytes || (best != nullptr && room <= most_room)) continue;
    best = &node;
    most_room = room;
  }
  return best;
}

void DrainManager::StartFetches(SoleCopies& sole) {
  size_t passed_over = 0;
  while (sole.fetching.size() < kMaxFetches && passed_over < kMaxPassedOver &&
         !sole.queued.empty()) {
    const ObjectId id = *sole.queued.begin();
    Object& object = *objects_.Find(id);
    // Another draining node may have asked for the object already: one fetch serves both.
    if (!object.drain_target.valid()) {
      Node* target = ChooseTarget(object);
      if (target == nullptr) {
        // Smaller objects may fit.
        ++passed_over;
        sole.queued.erase(id);
        sole.stuck.insert(id);
        AwaitRefusers(object);
        continue;
      }
      object.drain_target = target->key;
      target->objects.insert(id);
      outbox_.SendFetch(target->key, id, context_.NewPlan(), /*keep=*/true);
    }
    sole.queued.erase(id);
    sole.fetching.insert(id);
  }
}

// All queues before any fetch: a target that one node takes is seen by the next.
void DrainManager::RetryAll() {
  for (auto& [key, leaving] : draining_) {
    leaving.queued.merge(leaving.stuck);
    leaving.stuck.clear();
  }
  for (auto& [key, leaving] : draining_) StartFetches(leaving);
}

// Only changes are sent, and the drain ends with the message that names 0 objects.
void DrainManager::ReportProgress() {
  for (auto& [key, leaving] : draining_) {
    StartFetches(leaving);
    if (leaving.reported == leaving.size()) continue;
    leaving.reported = leaving.size();
    *outbox_.Send(key).mutable_drain_status() = StatusOf(leaving);
  }
}

v1::DrainStatus DrainManager::StatusOf(const SoleCopies& leaving) const {
  v1::DrainStatus status;
  status.set_objects_left(static_cast<uint32_t>(leaving.size()));
  if (leaving.stuck.empty()) return status;
  const ObjectId& stuck = *leaving.stuck.begin();
  status.set_message(absl::StrCat("object ", stuck.hex(), " of ",
                                  objects_.Find(stuck)->info.size_bytes,
                                  " bytes: no other node has room for it"));
  return status;
}

v1::DrainStatus DrainManager::StatusOf(const NodeKey& node) const {
  const auto found = draining_.find(node);
  return found == draining_.end() ? v1::DrainStatus() : StatusOf(found->second);
}

absl::Status DrainManager::CheckInvariants() const {
  size_t draining = 0;
  for (const auto& [key, node] : nodes_.all()) {
    if (node->draining != draining_.contains(key)) {
      return absl::InternalError(absl::StrCat("node ", key.ToString(), " drains, or does not"));
    }
    draining += node->draining ? 1 : 0;
  }
  if (draining != draining_.size()) return absl::InternalError("a node that is down drains");
  absl::btree_set<ObjectId> fetching;
  for (const auto& [key, leaving] : draining_) {
    if (leaving.fetching.size() > kMaxFetches) return absl::InternalError("too many fetches");
    for (const auto* ids : {&leaving.fetching, &leaving.queued, &leaving.stuck}) {
      for (const ObjectId& id : *ids) {
        const Object* object = objects_.Find(id);
        const auto copy =
            object == nullptr ? CopyMap::Map::const_iterator() : object->copies.find(key);
        if (object == nullptr || copy == object->copies.end() || !copy->second.complete() ||
            StaysElsewhere(*object) || leaving.lists_with(id) != 1) {
          return absl::InternalError(
              absl::StrCat("object ", id.hex(), " is in the wrong list of a draining node"));
        }
      }
    }
    fetching.insert(leaving.fetching.begin(), leaving.fetching.end());
  }
  for (const auto& [id, object] : objects_.all()) {
    const Node* target = nodes_.Find(object->drain_target);
    const bool asked = object->drain_target.valid();
    if (asked != fetching.contains(id)) return Broken(*object, "a fetch of it has no target");
    if (!asked) continue;
    if (target == nullptr || target->draining) return Broken(*object, "its drain target leaves");
    if (!target->objects.contains(id)) return Broken(*object, "its drain target does not know it");
  }
  return absl::OkStatus();
}

}  // namespace phalanx::directory
