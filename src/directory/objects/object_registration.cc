// What nodes register when they open a new session.
#include <algorithm>
#include <utility>
#include <vector>

#include "src/common/defects.h"
#include "src/common/status_macros.h"
#include "src/directory/objects/object_table.h"
#include "src/directory/placement/placement_policy.h"

namespace phalanx::directory {

namespace {

absl::StatusOr<Registration> ParseRegistration(const Node& node, const v1::RegisterCopy& m) {
  Registration r;
  PHALANX_ASSIGN_OR_RETURN(r.generation, ParseGeneration(m.generation()));
  PHALANX_ASSIGN_OR_RETURN(r.info, ParseObjectInfo(m.info()));
  PHALANX_RETURN_IF_ERROR(ValidateWatermarks(r.info, m.watermarks()));
  r.primary = m.primary();
  r.adopted = m.adopted();
  r.complete = m.complete();
  // An object with several slices can have a writer for each.
  const bool may_write = r.generation.creator == node.key || r.info.slices > 1;
  r.writing = m.writing() && !r.complete && may_write;
  // The sender of a writer is ignored: it could be downstream of the writer.
  if (!r.writing) r.sender = FromProto(m.sender());
  r.in_parts = m.in_parts();
  PHALANX_ASSIGN_OR_RETURN(r.policy, ParsePolicy(m.sticky()));
  return r;
}

}  // namespace

void ObjectTable::RemoveStale(Node& node) {
  for (const ObjectId& id : Sorted(node.objects)) {
    Object* object = Find(id);
    if (object == nullptr) continue;
    const auto copy = object->copies.find(node.key);
    const bool stale = copy != object->copies.end() && copy->second.stale;
    const size_t erased = std::erase_if(object->standbys, [&node](const Standby& standby) {
      return standby.node == node.key && standby.stale;
    });
    if (!stale && erased == 0) continue;
    // The session has registered all that its node has, so the node does not have this.
    if (stale) RemoveCopy(*object, node.key);
    UnlinkNodeIfUnused(node.key, *object);
    Reevaluate(*object);
  }
}

absl::Status ObjectTable::OnRegisterCopy(Node& node, const v1::RegisterCopy& m, bool* adopted) {
  PHALANX_ASSIGN_OR_RETURN(const ObjectId id, ParseObjectId(m.object_id()));
  PHALANX_ASSIGN_OR_RETURN(const Registration r, ParseRegistration(node, m));
  // Only a shard's verdict makes a node call a generation adopted.
  if (r.adopted) gate_.NoteEarlierLife();
  if (Tombstone* tombstone = tombstones_.FindRefusing(id, r.generation)) {
    // The tombstone stays until this node, which was out of reach when the object was deleted, has
    // dropped its copy.
    tombstones_.AwaitConfirm(*tombstone, r.generation, node.key, node.session);
    outbox_.SendVerdict(node.key, id, r.generation, v1::Verdict::DELETED);
    return absl::OkStatus();
  }
  Object& object = GetOrCreate(id);
  const bool current = object.IsAdopted(r.generation);
  if (current && !(object.info == r.info)) {
    return absl::InvalidArgumentError("info: another node registered another one");
  }
  object.LearnName(r.info.name);
  if (!object.adopted() && r.adopted && !gate_.learning() &&
      DefectActive(Defect::kFencedDropsSoleCopy)) {
    outbox_.SendVerdict(node.key, id, r.generation, v1::Verdict::SUPERSEDED, object.generation,
                        object.info);
  } else if (current || (!object.adopted() && r.adopted)) {
    RegisterAdopted(object, node, r, m.watermarks());
  } else {
    standbys_.Register(object, node, r, m.watermarks());
  }
  *adopted = object.adopted();
  Reevaluate(object);
  return absl::OkStatus();
}

bool ObjectTable::AdoptRegistered(Object& object, const Registration& r) {
  if (object.adopted()) return false;
  // A generation that was lost was sealed: if this copy goes, too, it is lost again and not void.
  object.phase_ =
      losses_.Contains(object.id, r.generation) ? ObjectPhase::kSealed : ObjectPhase::kWriting;
  object.generation = r.generation;
  object.SetInfo(r.info);
  scopes_.Add(object.info.scope, object.id);
  object.since = context_.now;
  // Before the loss is forgotten: it has the policy that is restored.
  listeners_.placements->OnReturned(object);
  losses_.Erase(object.id);
  // Reports of pulls that were planned before the loss do not count for the returned generation.
  object.first_plan = context_.NewPlan();
  tombstones_.Revive(object.id);
  return true;
}

void ObjectTable::RegisterAdopted(Object& object, Node& node, const Registration& r,
                                  absl::Span<const uint64_t> watermarks) {
  const bool returned = AdoptRegistered(object, r);
  // A node knows the generation as adopted: it was not adopted from absence.
  if (r.adopted) object.provisional = false;
  // Each node knows the time late, by the way of the message that it has it from, and registers it
  // later still: the shortest is nearest to the truth, and none ends too early.
  if (context_.now + r.info.ttl < ExpiryOf(object)) {
    expiries_.Set(object.id, context_.now + r.info.ttl);
  }
  // If two nodes differ, the one that received Kept wins: ownership ends and never begins again.
  if (!r.info.owned) ClearOwned(object);
  standbys_.Absorb(object);
  Copy& copy = AddCopy(object, node);
  // The copy was complete in the last session and is partial now: its node lost bytes, so its
  // receivers start over with another sender.
  if (copy.complete() && !r.complete) {
    RemoveCopy(object, node.key);
    RegisterAdopted(object, node, r, watermarks);
    return;
  }
  UpdateCopy(object, node, copy, r, watermarks);
  EndFinalReport(object, node.key);
  // Its pull may have completed since, and the report may be on its way.
  if (!r.complete && object.copies.complete() == 0) AwaitFinalReports(object);
  // The node waits for a verdict of its Put. Like any other one it is held back while an older
  // adopted generation can still be registered.
  if (!r.adopted && object.provisional) {
    object.verdict_held = true;
  } else if (!r.adopted) {
    outbox_.SendVerdict(node.key, object.id, r.generation, v1::Verdict::ADOPTED);
  }
  listeners_.pulls->OnCopyRegistered(object, node.key, object.Offers(node, copy, gate_.learning()));
  if (r.complete) CompleteCopy(object, node.key);
  if (returned) standbys_.Notify(object);
  if (returned) listeners_.placements->OnAdopted(object);
  if (r.policy.stamp != 0) listeners_.placements->OnPolicyRegistered(object, node.key, r.policy);
  if (!r.complete) listeners_.pulls->AdmitOutsidePulls(object, node.key);
}

void ObjectTable::UpdateCopy(Object& object, Node& node, Copy& copy, const Registration& r,
                             absl::Span<const uint64_t> watermarks) {
  copy.stale = false;
  copy.registered = true;
  copy.primary = r.primary;
  copy.registered_stamp = r.policy.stamp;
  // A registered copy is one that the node has, whatever it knew of the Deliver.
  ConfirmCopy(object, copy);
  if (!copy.complete()) {
    object.copies.SetState(copy, r.writing ? CopyState::kWriting : CopyState::kReceiving);
  }
  copy.watermarks.assign(watermarks.begin(), watermarks.end());
  if (r.info.owned && !object.info.owned) outbox_.SendKept(node.key, object.id, object.generation);
  const bool pulls = !r.complete && r.sender.valid();
  // A node that pulls from several senders is planned again.
  copy.registered_sender = pulls && !r.in_parts ? r.sender : NodeKey();
  if (pulls) {
    if (copy.pull == nullptr) copy.pull = std::make_unique<PullRecord>();
    copy.pull->sender = r.sender;
    // The plan's number is an earlier shard's.
    copy.pull->plan = 0;
    copy.pull->started = context_.now;
  }
  // A node that names no sender pulls nothing: no report of it is on its way.
  if (copy.pull != nullptr) copy.pull->reported = !pulls;
}

}  // namespace phalanx::directory
