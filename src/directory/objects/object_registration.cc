// What nodes register when they open a new session.
#include <algorithm>
#include <utility>
#include <vector>

#include "src/common/defects.h"
#include "src/common/status_macros.h"
#include "src/directory/objects/object_table.h"
#include "src/directory/placement/policy_messages.h"

namespace phalanx::directory {

ObjectTable::Registration ObjectTable::FromAttempt(const Attempt& attempt) {
  Registration r;
  r.generation = attempt.generation;
  r.info = attempt.info;
  r.primary = attempt.generation.creator == attempt.node;
  r.complete = attempt.complete;
  r.writing = !attempt.complete;
  r.policy = attempt.policy;
  return r;
}

void ObjectTable::RemoveStale(Node& node) {
  for (const ObjectId& id : Sorted(node.objects)) {
    Object* object = Find(id);
    if (object == nullptr) continue;
    const auto copy = object->copies.find(node.key);
    const bool stale = copy != object->copies.end() && copy->second.stale;
    const size_t attempts = object->attempts.size();
    std::erase_if(object->attempts,
                  [&node](const Attempt& a) { return a.node == node.key && a.stale; });
    if (!stale && object->attempts.size() == attempts) continue;
    if (stale) RemoveCopy(*object, node.key);
    UnlinkNodeIfUnused(node.key, *object);
    Reevaluate(*object);
  }
}

absl::Status ObjectTable::OnRegisterCopy(Node& node, const v1::RegisterCopy& m, bool* adopted) {
  PHALANX_ASSIGN_OR_RETURN(const ObjectId id, ParseObjectId(m.object_id()));
  Registration r;
  PHALANX_ASSIGN_OR_RETURN(r.generation, ParseGeneration(m.generation()));
  PHALANX_ASSIGN_OR_RETURN(r.info, ParseObjectInfo(m.info()));
  PHALANX_RETURN_IF_ERROR(ValidateWatermarks(r.info, m.watermarks()));
  r.primary = m.primary();
  r.adopted = m.adopted();
  r.complete = m.complete();
  // What has several slices may have a writer for each.
  const bool may_write = r.generation.creator == node.key || r.info.slices > 1;
  r.writing = m.writing() && !r.complete && may_write;
  // Who writes has no sender, whatever it says: it could be fed from below itself.
  if (!r.writing) r.sender = FromProto(m.sender());
  PHALANX_ASSIGN_OR_RETURN(r.policy, ParsePolicy(m.sticky()));
  if (r.adopted) gate_.NoteEarlierLife();
  if (Tombstone* tombstone = tombstones_.FindRefusing(id, r.generation)) {
    tombstones_.AwaitConfirm(*tombstone, id, r.generation, node.key, node.session);
    outbox_.SendVerdict(node.key, id, r.generation, v1::Verdict::DELETED);
    return absl::OkStatus();
  }
  Object& object = GetOrCreate(id);
  const bool current = object.adopted && object.generation == r.generation;
  if (current && !(object.info == r.info)) {
    return absl::InvalidArgumentError("info: another node registered another one");
  }
  if (!object.adopted && r.adopted && !gate_.learning() &&
      DefectActive(Defect::kFencedDropsSoleCopy)) {
    SendVerdict(node.key, object, r.generation, v1::Verdict::SUPERSEDED);
  } else if (current || (!object.adopted && r.adopted)) {
    RegisterAdopted(object, node, r, m.watermarks());
  } else {
    RegisterRival(object, node, r, m.watermarks());
  }
  *adopted = object.adopted;
  Reevaluate(object);
  return absl::OkStatus();
}

void ObjectTable::RegisterAdopted(Object& object, Node& node, const Registration& r,
                                  absl::Span<const uint64_t> watermarks) {
  const bool found_it = !object.adopted;
  if (found_it) {
    object.adopted = true;
    object.sealed = losses_.Contains(object.id, r.generation);
    object.loss_reported = false;
    object.generation = r.generation;
    object.info = r.info;
    RestorePolicy(object);
    losses_.Erase(object.id);
    object.first_plan = context_.NewPlan();
    tombstones_.Revive(object.id);
  }
  if (r.adopted) object.tentative = false;
  if (!r.info.owned) ClearOwned(object);
  AbsorbAttempts(object);
  Copy& copy = AddCopy(object, node);
  // What was complete in the last session and is partial now lost bytes: its receivers start over
  // with somebody else.
  if (copy.complete && !r.complete) {
    RemoveCopy(object, node.key);
    RegisterAdopted(object, node, r, watermarks);
    return;
  }
  copy.stale = false;
  copy.unconfirmed = false;
  copy.registered = true;
  copy.primary = r.primary;
  copy.registered_stamp = r.policy.stamp;
  SetWriter(object, copy, r.writing);
  copy.watermarks.assign(watermarks.begin(), watermarks.end());
  if (r.info.owned && !object.info.owned) outbox_.SendKept(node.key, object.id, object.generation);
  copy.registered_sender = r.complete ? NodeKey() : r.sender;
  if (copy.registered_sender.valid()) {
    if (copy.pull == nullptr) copy.pull = std::make_unique<PullRecord>();
    copy.pull->sender = r.sender;
    copy.pull->plan = 0;
    copy.pull->started = context_.now;
  }
  if (copy.pull != nullptr) copy.pull->reported = !copy.registered_sender.valid();
  EndFinalReport(object, node.key);
  // Its pull may have ended well since, and the report be on the way.
  if (!r.complete && object.complete_copies == 0) AwaitFinalReports(object);
  if (!r.adopted && object.tentative) {
    object.verdict_held = true;
  } else if (!r.adopted) {
    SendVerdict(node.key, object, r.generation, v1::Verdict::ADOPTED);
  }
  listeners_.pulls->OnCopyRegistered(object, node.key, node.connected);
  if (r.complete) CompleteCopy(object, node.key);
  if (found_it) NotifyStandbys(object);
  if (found_it) RestartPlacement(object);
  TakePolicy(object, node.key, r.policy);
  if (!r.complete) listeners_.pulls->AdmitOutsidePulls(object, node.key);
}

void ObjectTable::AbsorbAttempts(Object& object) {
  std::vector<Attempt> same;
  for (const Attempt& attempt : object.attempts) {
    if (attempt.generation == object.generation) same.push_back(attempt);
  }
  for (const Attempt& attempt : same) EraseAttempt(object, attempt.generation, attempt.node);
  for (const Attempt& attempt : same) {
    Node* node = nodes_.Find(attempt.node);
    if (node == nullptr) continue;
    if (attempt.stale) {
      UnlinkNodeIfUnused(attempt.node, object);
      continue;
    }
    RegisterAdopted(object, *node, FromAttempt(attempt), {});
  }
}

bool ObjectTable::RivalWins(const Object& object, const Registration& r) const {
  if (DefectActive(Defect::kProvisionalBeatsAdopted) && !r.adopted) return true;
  if (!object.adopted || !r.adopted) return false;
  if (object.tentative) return true;
  if (object.complete_copies > 0) return false;
  if (r.complete) return true;
  return r.generation < object.generation;
}

// Another generation than the adopted one, or one that was never adopted.
void ObjectTable::RegisterRival(Object& object, Node& node, const Registration& r,
                                absl::Span<const uint64_t> watermarks) {
  if (RivalWins(object, r)) {
    const Generation loser = object.generation;
    const ObjectInfo loser_info = object.info;
    const auto creator = object.copies.find(loser.creator);
    const bool stands_by = object.adopted && creator != object.copies.end() &&
                           (creator->second.complete || creator->second.writer);
    const bool complete = stands_by && creator->second.complete;
    const bool was_adopted = object.adopted && !object.tentative;
    VoidGeneration(object, "another generation had been adopted before",
                   stands_by ? loser.creator : NodeKey());
    Registration winner = r;
    winner.adopted = true;
    RegisterAdopted(object, node, winner, watermarks);
    Node* loser_node = nodes_.Find(loser.creator);
    if (stands_by && loser_node != nullptr) {
      StandBy(object, *loser_node, loser, loser_info, complete, was_adopted);
    }
    return;
  }
  // A part of a pull cannot become whole by itself.
  if (!r.complete && !r.writing) {
    SendVerdict(node.key, object, r.generation, v1::Verdict::SUPERSEDED);
    return;
  }
  StandBy(object, node, r.generation, r.info, r.complete, r.adopted);
  object.attempts.back().policy = r.policy;
}

// The generation that had been adopted here is deleted: one of those that were adopted elsewhere,
// after that Delete, is what there is.
void ObjectTable::AdoptSpared(Object& object) {
  const auto best = std::min_element(
      object.attempts.begin(), object.attempts.end(), [](const Attempt& a, const Attempt& b) {
        if (a.adopted != b.adopted) return a.adopted;
        return a.complete != b.complete ? a.complete : a.generation < b.generation;
      });
  if (best == object.attempts.end() || !best->adopted) return;
  const Attempt chosen = *best;
  EraseAttempt(object, chosen.generation, chosen.node);
  Registration r = FromAttempt(chosen);
  r.adopted = true;
  RegisterAdopted(object, *nodes_.Find(chosen.node), r, {});
}

void ObjectTable::RefuseAttempts(Object& object, const Generation& generation,
                                 Tombstone& tombstone) {
  std::vector<NodeKey> holders;
  for (const Attempt& attempt : object.attempts) {
    if (attempt.generation == generation) holders.push_back(attempt.node);
  }
  for (const NodeKey& holder : holders) {
    outbox_.SendVerdict(holder, object.id, generation, v1::Verdict::DELETED);
    tombstones_.AwaitConfirm(tombstone, object.id, generation, holder,
                             nodes_.Find(holder)->session);
    EraseAttempt(object, generation, holder);
    UnlinkNodeIfUnused(holder, object);
  }
}

}  // namespace phalanx::directory
