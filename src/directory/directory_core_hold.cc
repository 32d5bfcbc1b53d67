// Who holds what, and what is freed because nobody does (docs/lifetime.md); objects of which no
// copy is left.
//
// An owned object that no node holds is deleted, as a Delete would, at the end of the turn in which
// that came to be so; or, while something else speaks for it (MayFree), when that has ended: each
// such thing puts the id into `unheld_` again.
#include <utility>

#include "absl/strings/str_cat.h"
#include "src/common/defects.h"
#include "src/common/status_macros.h"
#include "src/directory/directory_core_impl.h"

namespace phalanx::directory {

// ---- what nodes tell

void DirectoryCore::Impl::HoldAll(Node& node, absl::Span<const ObjectId> ids) {
  for (const ObjectId& id : ids) holds_.Hold(node.key, id);
}

absl::Status DirectoryCore::Impl::OnRegisterHolds(Node& node, const v1::RegisterHolds& m) {
  PHALANX_ASSIGN_OR_RETURN(const std::vector<ObjectId> ids,
                           ParseObjectIds("object_ids", m.object_ids()));
  HoldAll(node, ids);
  return absl::OkStatus();
}

absl::Status DirectoryCore::Impl::OnHold(Node& node, const v1::Hold& m) {
  PHALANX_ASSIGN_OR_RETURN(const std::vector<ObjectId> ids,
                           ParseObjectIds("object_ids", m.object_ids()));
  HoldAll(node, ids);
  return absl::OkStatus();
}

absl::Status DirectoryCore::Impl::OnUnhold(Node& node, const v1::Unhold& m) {
  PHALANX_ASSIGN_OR_RETURN(const std::vector<ObjectId> ids,
                           ParseObjectIds("object_ids", m.object_ids()));
  for (const ObjectId& id : ids) holds_.Unhold(node.key, id);
  return absl::OkStatus();
}

absl::Status DirectoryCore::Impl::OnClaim(Node& node, const v1::Claim& m) {
  PHALANX_ASSIGN_OR_RETURN(const ObjectId id, ParseObjectId(m.object_id()));
  PHALANX_ASSIGN_OR_RETURN(const NodeKey from, ParseNodeKey(m.node()));
  ++counters_.claims;
  // Who let go of it again before it was told needs no claim: what is on its way may be the last.
  const bool held = holds_.HeldBy(node.key, id) || DefectActive(Defect::kClaimBeforeHold);
  if (!held || FindNode(from) == nullptr) return absl::OkStatus();
  v1::Claimed& claimed = *Send(from).mutable_claimed();
  claimed.set_object_id(m.object_id());
  claimed.set_number(m.number());
  return absl::OkStatus();
}

// ---- objects that are to stay

absl::Status DirectoryCore::Impl::OnKeep(Node& node, const v1::KeepRequest& m) {
  PHALANX_ASSIGN_OR_RETURN(const ObjectId id, ParseObjectId(m.object_id()));
  if (!MustLearnAbout(id)) {
    AnswerKeep(id, node.key, m.request_id());
  } else if (!Defer(id, node, m.request_id(), Deferred::Kind::kKeep)) {
    v1::KeepReply& reply = *Send(node.key).mutable_keep_reply();
    reply.set_request_id(m.request_id());
    reply.set_code(static_cast<int>(absl::StatusCode::kResourceExhausted));
    reply.set_message(TooManyDeferred(id));
  }
  return absl::OkStatus();
}

void DirectoryCore::Impl::AnswerKeep(const ObjectId& id, const NodeKey& node, uint64_t request_id) {
  Object* object = FindObject(id);
  Reduction* reduction = FindReduction(id);
  const bool adopted = object != nullptr && object->adopted;
  if (reduction != nullptr) reduction->owned = false;
  if (adopted) KeepObject(*object);
  v1::KeepReply& reply = *Send(node).mutable_keep_reply();
  reply.set_request_id(request_id);
  if (adopted || reduction != nullptr) return;
  reply.set_code(static_cast<int>(absl::StatusCode::kNotFound));
  reply.set_message(absl::StrCat(
      "object ", id.hex(),
      FindDeleted(id) != nullptr ? ": it was deleted" : ": nothing was put under this id"));
}

void DirectoryCore::Impl::KeepObject(Object& object) {
  if (!std::exchange(object.info.owned, false)) return;
  // What is stale is told when its node registers it.
  for (const auto& [key, copy] : object.copies) {
    if (!copy.stale) SendKept(key, object);
  }
}

void DirectoryCore::Impl::SendKept(const NodeKey& to, const Object& object) {
  v1::Kept& kept = *Send(to).mutable_kept();
  kept.set_object_id(object.id.binary().data(), ObjectId::kSize);
  ToProto(object.generation, kept.mutable_generation());
}

// ---- objects that nobody holds

bool DirectoryCore::Impl::MayFree(const Object& object) const {
  return Unheld(object) && !Learning() && holds_.complete() && object.spared_until <= now_ &&
         !watchers_.contains(object.id) && !reductions_.contains(object.id);
}

bool DirectoryCore::Impl::FreeUnheld() {
  ReviewUnheld();
  for (const ObjectId& id : holds_.TakeUnheld()) unheld_.insert(id);
  if (unheld_.empty()) return false;
  for (const ObjectId& id : std::exchange(unheld_, {})) {
    Object* object = FindObject(id);
    if (object == nullptr || !MayFree(*object)) continue;
    ++counters_.freed;
    DeleteObject(*object);
  }
  return true;
}

void DirectoryCore::Impl::ReviewUnheld() {
  const bool complete = holds_.complete();
  if (complete == std::exchange(holds_were_complete_, complete) || !complete) return;
  for (const auto& [id, object] : objects_) {
    if (Unheld(*object)) unheld_.insert(id);
  }
}

void DirectoryCore::Impl::SpareSource(const ObjectId& source) {
  Object* object = FindObject(source);
  if (object == nullptr || !object->adopted || !object->info.owned) return;
  object->spared_until = now_ + options_.lease;
  SetTimer(*object, object->spared_until);
}

// ---- objects that are lost

std::string DirectoryCore::Impl::NameOf(const NodeKey& key) const {
  if (going_ != nullptr && going_->key == key) return going_->info.name();
  const Node* node = FindNode(key);
  return node != nullptr ? node->info.name() : key.ToString();
}

void DirectoryCore::Impl::NoteLoss(const Object& object) {
  const auto [at, added] = lost_.try_emplace(object.id);
  if (!added) return;
  ++counters_.lost;
  at->second.generation = object.generation;
  at->second.reason =
      absl::StrCat("no complete copy is left; the last was on node ", object.last_holder);
  at->second.order = next_order_++;
  lost_by_age_[at->second.order] = object.id;
  if (lost_.size() > options_.max_lost) ForgetLoss(ObjectId(lost_by_age_.begin()->second));
}

void DirectoryCore::Impl::ForgetLoss(const ObjectId& id) {
  const auto found = lost_.find(id);
  if (found == lost_.end()) return;
  lost_name_bytes_ -= BytesOf(found->second.mark.nodes);
  lost_by_age_.erase(found->second.order);
  lost_.erase(found);
}

bool DirectoryCore::Impl::WasLost(const ObjectId& id, const Generation& generation) const {
  const auto found = lost_.find(id);
  return found != lost_.end() && found->second.generation == generation;
}

void DirectoryCore::Impl::TellLoss(const NodeKey& to, const ObjectId& id) {
  const auto found = lost_.find(id);
  // A reduction makes it anew.
  if (found == lost_.end() || FindReduction(id) != nullptr) return;
  v1::Gone& gone = *Send(to).mutable_gone();
  gone.set_object_id(id.binary().data(), ObjectId::kSize);
  gone.set_kind(v1::Gone::LOST);
  gone.set_reason(found->second.reason);
}

}  // namespace phalanx::directory
