#include "src/directory/objects/hold_manager.h"

#include <utility>
#include <vector>

#include "absl/container/btree_set.h"
#include "absl/strings/str_cat.h"
#include "src/common/defects.h"
#include "src/common/status_macros.h"

namespace phalanx::directory {

absl::Status HoldManager::OnRegisterHolds(Node& node, const v1::RegisterHolds& m) {
  PHALANX_ASSIGN_OR_RETURN(const std::vector<ObjectId> ids,
                           ParseObjectIds("object_ids", m.object_ids()));
  // Ids without an object count, too: a node may hold an id before it is put.
  for (const ObjectId& id : ids) parts_.holds.Hold(node.key, id);
  return absl::OkStatus();
}

absl::Status HoldManager::OnHold(Node& node, const v1::Hold& m) {
  PHALANX_ASSIGN_OR_RETURN(const std::vector<ObjectId> ids,
                           ParseObjectIds("object_ids", m.object_ids()));
  for (const ObjectId& id : ids) parts_.holds.Hold(node.key, id);
  return absl::OkStatus();
}

absl::Status HoldManager::OnUnhold(Node& node, const v1::Unhold& m) {
  PHALANX_ASSIGN_OR_RETURN(const std::vector<ObjectId> ids,
                           ParseObjectIds("object_ids", m.object_ids()));
  for (const ObjectId& id : ids) parts_.holds.Unhold(node.key, id);
  return absl::OkStatus();
}

absl::Status HoldManager::OnClaim(Node& node, const v1::Claim& m) {
  PHALANX_ASSIGN_OR_RETURN(const std::vector<ObjectId> ids,
                           ParseObjectIds("object_ids", m.object_ids()));
  PHALANX_ASSIGN_OR_RETURN(const NodeKey from, ParseNodeKey(m.node()));
  if (ids.size() != static_cast<size_t>(m.numbers_size())) {
    return absl::InvalidArgumentError(
        absl::StrCat("numbers: ", m.numbers_size(), " for ", ids.size(), " ids"));
  }
  parts_.context.counters.claims += ids.size();
  v1::Claimed claimed;
  for (size_t i = 0; i < ids.size(); ++i) {
    // A claimant that has released its hold again needs no confirmation: the confirmation would let
    // `from` release what may be the last hold.
    if (!parts_.holds.HeldBy(node.key, ids[i]) && !DefectActive(Defect::kClaimBeforeHold)) continue;
    claimed.mutable_object_ids()->append(ids[i].binary().data(), ObjectId::kSize);
    claimed.add_numbers(m.numbers(static_cast<int>(i)));
  }
  if (claimed.numbers().empty() || parts_.nodes.Find(from) == nullptr) return absl::OkStatus();
  *parts_.outbox.Send(from).mutable_claimed() = std::move(claimed);
  return absl::OkStatus();
}

absl::Status HoldManager::OnKeep(Node& node, const v1::KeepRequest& m) {
  PHALANX_ASSIGN_OR_RETURN(const ObjectId id, ParseObjectId(m.object_id()));
  // A shard that has just started may not know the object yet: NotFound would let it be freed
  // later.
  if (!parts_.objects.MustLearnAbout(id)) {
    AnswerKeep(id, node.key, m.request_id());
  } else if (!parts_.gate.Defer(
                 id, {node.key, node.session, m.request_id(), DeferredRequest::Kind::kKeep})) {
    v1::KeepReply& reply = *parts_.outbox.Send(node.key).mutable_keep_reply();
    reply.set_request_id(m.request_id());
    reply.set_code(static_cast<int>(absl::StatusCode::kResourceExhausted));
    reply.set_message(parts_.gate.FullMessage(id));
  }
  return absl::OkStatus();
}

void HoldManager::AnswerKeep(const ObjectId& id, const NodeKey& node, uint64_t request_id) {
  Object* object = parts_.objects.Find(id);
  const bool adopted = object != nullptr && object->adopted();
  // Also while a reduction still computes the object: its result is then not owned.
  const bool reducing = parts_.reductions.ClearOwned(id);
  if (adopted) parts_.objects.ClearOwned(*object);
  v1::KeepReply& reply = *parts_.outbox.Send(node).mutable_keep_reply();
  reply.set_request_id(request_id);
  if (adopted || reducing) return;
  reply.set_code(static_cast<int>(absl::StatusCode::kNotFound));
  reply.set_message(absl::StrCat("object ", id.hex(),
                                 parts_.tombstones.FindDeleted(id) != nullptr
                                     ? ": it was deleted"
                                     : ": nothing was put under this id"));
}

bool HoldManager::MayFree(const Object& object) const {
  // Each condition stands for a holder that the shard may not know of: nodes that have not
  // registered, holds beyond the limit, a reduction's other watch proxy, and reductions themselves.
  return parts_.objects.Unreferenced(object) && !parts_.gate.learning() &&
         parts_.holds.complete() && object.gc_grace_until <= parts_.context.now &&
         !parts_.reductions.Watches(object.id) && !parts_.reductions.IsReducing(object.id);
}

bool HoldManager::FreeUnreferenced() {
  ReviewUnreferenced();
  // An id without a hold is not necessarily unreferenced: MayFree decides.
  bool reductions_changed = false;
  for (const ObjectId& id : parts_.holds.TakeUnheld()) {
    if (parts_.reductions.OnUnheld(id)) {
      reductions_changed = true;
    } else {
      parts_.objects.NoteUnreferenced(id);
    }
  }
  // Taken first: freeing one object can make others unreferenced, which are for the next call.
  const absl::btree_set<ObjectId> unreferenced = parts_.objects.TakeUnreferenced();
  if (unreferenced.empty()) return reductions_changed;
  for (const ObjectId& id : unreferenced) {
    Object* object = parts_.objects.Find(id);
    if (object == nullptr || !MayFree(*object)) continue;
    ++parts_.context.counters.freed;
    parts_.freer.Free(*object);
  }
  return true;
}

void HoldManager::ReviewUnreferenced() {
  const bool complete = parts_.holds.complete();
  // Only the change to complete matters: while holds are unrecorded, MayFree frees nothing.
  if (complete == std::exchange(holds_were_complete_, complete) || !complete) return;
  for (const auto& [id, object] : parts_.objects.all()) {
    if (parts_.objects.Unreferenced(*object)) parts_.objects.NoteUnreferenced(id);
  }
}

}  // namespace phalanx::directory
