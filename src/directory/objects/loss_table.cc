#include "src/directory/objects/loss_table.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace phalanx::directory {
namespace {

size_t BytesOf(const PlacementPolicy& policy) {
  size_t bytes = 0;
  for (const std::string& name : policy.nodes) bytes += sizeof(std::string) + name.size();
  return bytes;
}

}  // namespace

void LossTable::Add(const ObjectId& id, const Generation& generation,
                    absl::string_view last_holder) {
  const auto [at, added] = lost_.try_emplace(id);
  // The first reason names the node that had the last copy.
  if (!added) return;
  ++context_.counters.lost;
  at->second.generation = generation;
  at->second.reason = absl::StrCat("no complete copy is left; the last was on node ", last_holder);
  // Bounded by age: a Get of an id that was lost long ago waits, like one of an id never put.
  at->second.order = context_.NewOrder();
  by_age_[at->second.order] = id;
  // A copy of the id: Erase ends the entry that it is in.
  if (lost_.size() > context_.options.max_lost) Erase(ObjectId(by_age_.begin()->second));
}

void LossTable::Erase(const ObjectId& id) {
  const auto found = lost_.find(id);
  if (found == lost_.end()) return;
  name_bytes_ -= BytesOf(found->second.policy);
  by_age_.erase(found->second.order);
  lost_.erase(found);
}

const LostObject* LossTable::Find(const ObjectId& id) const {
  const auto found = lost_.find(id);
  return found == lost_.end() ? nullptr : &found->second;
}

bool LossTable::Contains(const ObjectId& id, const Generation& generation) const {
  const LostObject* lost = Find(id);
  return lost != nullptr && lost->generation == generation;
}

void LossTable::SetPolicy(const ObjectId& id, PlacementPolicy policy) {
  const auto found = lost_.find(id);
  if (found == lost_.end()) return;
  LostObject& lost = found->second;
  name_bytes_ -= BytesOf(lost.policy);
  // Beyond the limit the policy is dropped: the object returns without one.
  const bool room = BytesOf(policy) <= context_.options.max_lost_name_bytes - name_bytes_;
  lost.policy = room ? std::move(policy) : PlacementPolicy();
  name_bytes_ += BytesOf(lost.policy);
}

absl::Status LossTable::CheckInvariants() const {
  size_t bytes = 0;
  for (const auto& [id, lost] : lost_) bytes += BytesOf(lost.policy);
  if (bytes != name_bytes_) return absl::InternalError("names of lost objects are miscounted");
  if (by_age_.size() != lost_.size()) return absl::InternalError("lost objects are miscounted");
  return absl::OkStatus();
}

}  // namespace phalanx::directory
