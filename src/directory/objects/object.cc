#include "src/directory/objects/object.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "src/common/defects.h"
#include "src/common/ids/random_id.h"

namespace phalanx::directory {

absl::Status Broken(const Object& object, absl::string_view what) {
  return absl::InternalError(absl::StrCat("object ", object.id.hex(), ": ", what));
}

std::pair<Copy&, bool> CopyMap::Add(const NodeKey& node) {
  const auto [at, added] = copies_.try_emplace(node);
  return {at->second, added};
}

void CopyMap::SetState(Copy& copy, CopyState state) {
  // The counts make "is any copy complete" cheap, which nearly every message about the object asks.
  complete_ -= copy.complete() ? 1 : 0;
  writing_ -= copy.writing() ? 1 : 0;
  copy.state_ = state;
  complete_ += copy.complete() ? 1 : 0;
  writing_ += copy.writing() ? 1 : 0;
}

void CopyMap::Remove(Map::iterator copy) {
  // Takes the copy out of both counts.
  SetState(copy->second, CopyState::kReceiving);
  copies_.erase(copy);
}

bool Object::HasConfirmedCopy(const NodeKey& node) const {
  const auto copy = copies.find(node);
  return copy != copies.end() && copy->second.state() == CopyState::kComplete &&
         !copy->second.stale;
}

bool Object::HasOtherCompleteCopy(const NodeTable& nodes, const NodeKey& except) const {
  for (const auto& [key, copy] : copies) {
    if (copy.state() != CopyState::kComplete || copy.stale || key == except) continue;
    const Node* node = nodes.Find(key);
    // A disconnected node may be dead, and a draining one will be gone.
    if (node != nullptr && node->connected && !node->draining) return true;
  }
  return false;
}

Node* Object::FindUnconfirmed(NodeTable& nodes, const NodeKey& except) const {
  for (const auto& [key, copy] : copies) {
    if (!copy.unconfirmed() || copy.stale || key == except) continue;
    Node* node = nodes.Find(key);
    // A node that registers will confirm the copy, or leave it out, without being asked.
    if (node != nullptr && node->connected && !node->draining && !node->registering) return node;
  }
  return nullptr;
}

bool Object::Offers(const Node& node, const Copy& copy, bool learning) const {
  // The generation can have been deleted while the node was away, and a node that knows of that can
  // still register.
  const bool doubtful = learning && node.lease_ended && copy.registered && !IsRandomId(id);
  return node.connected && !copy.stale &&
         !(doubtful && !DefectActive(Defect::kServedBeforeRegistered));
}

void Object::SetInfo(ObjectInfo other) {
  ObjectName known = std::move(info.name);
  info = std::move(other);
  if (!known.empty()) info.name = std::move(known);
}

Standby* Object::FindStandby(const Generation& standby_generation, const NodeKey& node) {
  for (Standby& standby : standbys) {
    if (standby.generation == standby_generation && standby.node == node) return &standby;
  }
  return nullptr;
}

void Object::EraseStandby(const Generation& standby_generation, const NodeKey& node) {
  std::erase_if(standbys, [&standby_generation, &node](const Standby& standby) {
    return standby.generation == standby_generation && standby.node == node;
  });
}

}  // namespace phalanx::directory
