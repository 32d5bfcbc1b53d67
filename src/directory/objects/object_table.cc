#include "src/directory/objects/object_table.h"

#include <algorithm>
#include <optional>

#include "absl/strings/str_cat.h"
#include "src/common/check.h"
#include "src/common/defects.h"
#include "src/common/status_macros.h"

namespace phalanx::directory {
namespace {

absl::Status Broken(const Object& object, absl::string_view what) {
  return absl::InternalError(absl::StrCat("object ", object.id.hex(), ": ", what));
}

}  // namespace

ObjectTable::ObjectTable(const Parts& parts, const ObjectListeners& listeners)
    : context_(parts.context),
      nodes_(parts.nodes),
      outbox_(parts.outbox),
      gate_(parts.gate),
      holds_(parts.holds),
      tombstones_(parts.tombstones),
      losses_(parts.losses),
      failures_(parts.failures),
      inline_cache_(parts.inline_cache),
      placements_(parts.placements),
      listeners_(listeners) {}

Object* ObjectTable::Find(const ObjectId& id) {
  const auto found = objects_.find(id);
  return found == objects_.end() ? nullptr : found->second.get();
}

Object& ObjectTable::GetOrCreate(const ObjectId& id) {
  auto [at, added] = objects_.try_emplace(id);
  if (added) at->second = std::make_unique<Object>(id);
  return *at->second;
}

// There may be another copy of what was there: it is lost when the shard has learned.
bool ObjectTable::MayComeBack(const Object& object) const {
  return object.adopted && object.sealed && object.copies.empty() && gate_.learning();
}

void ObjectTable::UnlinkNodeIfUnused(const NodeKey& key, Object& object) {
  Node* node = nodes_.Find(key);
  if (node == nullptr || object.copies.contains(key) || object.wants.contains(key)) return;
  if (object.drain_target == key) return;
  for (const Attempt& attempt : object.attempts) {
    if (attempt.node == key) return;
  }
  node->objects.erase(object.id);
}

void ObjectTable::SetTimer(Object& object, Instant when) {
  if (when >= object.timer) return;
  if (!object.timer.infinite()) timers_.erase({object.timer, object.id});
  object.timer = when;
  timers_.insert({when, object.id});
}

absl::Status ObjectTable::OnSeal(Node& node, const v1::AnnounceSeal& m) {
  PHALANX_ASSIGN_OR_RETURN(const ObjectId id, ParseObjectId(m.object_id()));
  PHALANX_ASSIGN_OR_RETURN(const Generation generation, ParseGeneration(m.generation()));
  Object* object = Find(id);
  if (object == nullptr) {
    ++context_.counters.late_messages;
    return absl::OkStatus();
  }
  if (Attempt* attempt = FindAttempt(*object, generation, node.key)) {
    PHALANX_RETURN_IF_ERROR(
        ValidateInline(attempt->info.size_bytes, true, m.has_inline(), m.inline_bytes()));
    if (attempt->complete) return absl::OkStatus();
    attempt->complete = true;
    if (attempt->superseded && attempt->info.size_bytes != object->info.size_bytes) {
      ++object->conflicts;
      ++context_.counters.conflicts;
    }
    if (!attempt->superseded && DefectActive(Defect::kStandbyAdoptedEarly)) {
      VoidGeneration(*object, "another generation was complete first", NodeKey());
    }
    Reevaluate(*object);
    return absl::OkStatus();
  }
  const bool current =
      object->adopted && object->generation == generation && object->copies.contains(node.key);
  if (!current) {
    ++context_.counters.late_messages;
    return absl::OkStatus();
  }
  PHALANX_RETURN_IF_ERROR(
      ValidateInline(object->info.size_bytes, true, m.has_inline(), m.inline_bytes()));
  CompleteCopy(*object, node.key);
  if (m.has_inline()) CacheInline(*object, m.inline_bytes());
  Reevaluate(*object);
  return absl::OkStatus();
}

absl::Status ObjectTable::OnWithdraw(Node& node, const v1::Withdraw& m) {
  PHALANX_ASSIGN_OR_RETURN(const ObjectId id, ParseObjectId(m.object_id()));
  PHALANX_ASSIGN_OR_RETURN(const Generation generation, ParseGeneration(m.generation()));
  tombstones_.Confirm(id, generation, node.key);
  Object* object = Find(id);
  if (object == nullptr) return absl::OkStatus();
  if (object->adopted && object->generation == generation && object->copies.contains(node.key)) {
    RemoveCopy(*object, node.key);
    listeners_.pulls->Postpone(*object, node.key);
  }
  EraseAttempt(*object, generation, node.key);
  UnlinkNodeIfUnused(node.key, *object);
  Reevaluate(*object);
  return absl::OkStatus();
}

void ObjectTable::Adopt(Object& object, Node& node, const Generation& generation, ObjectInfo info,
                        bool complete, bool notify) {
  PHALANX_CHECK(!object.adopted && object.copies.empty(), "one generation at a time");
  object.adopted = true;
  object.sealed = false;
  object.loss_reported = false;
  object.tentative = gate_.learning();
  object.first_plan = context_.NewPlan();
  object.generation = generation;
  object.info = std::move(info);
  ++context_.counters.adopted;
  failures_.Erase(object.id);
  losses_.Erase(object.id);
  tombstones_.Revive(object.id);
  Copy& copy = AddCopy(object, node);
  copy.primary = true;
  SetWriter(object, copy, !complete);
  if (notify) ReportAdopted(object);
  RestartPlacement(object);
  if (complete) CompleteCopy(object, node.key);
}

void ObjectTable::ReportAdopted(Object& object) {
  object.verdict_held = object.tentative;
  if (object.tentative || !object.copies.contains(object.generation.creator)) return;
  SendVerdict(object.generation.creator, object, object.generation, v1::Verdict::ADOPTED);
}

Attempt* ObjectTable::FindAttempt(Object& object, const Generation& generation,
                                  const NodeKey& node) {
  for (Attempt& attempt : object.attempts) {
    if (attempt.generation == generation && attempt.node == node) return &attempt;
  }
  return nullptr;
}

void ObjectTable::EraseAttempt(Object& object, const Generation& generation, const NodeKey& node) {
  std::erase_if(object.attempts, [&generation, &node](const Attempt& a) {
    return a.generation == generation && a.node == node;
  });
}

void ObjectTable::StandBy(Object& object, Node& node, const Generation& generation, ObjectInfo info,
                          bool complete, bool adopted) {
  EraseAttempt(object, generation, node.key);
  object.attempts.push_back(Attempt{generation, node.key, std::move(info), complete,
                                    /*superseded=*/false, /*stale=*/false, adopted});
  node.objects.insert(object.id);
  if (!object.adopted) return;
  Attempt& attempt = object.attempts.back();
  const bool in_sight = CompleteInSight(object);
  if (in_sight) Supersede(object, attempt);
  // What may have been adopted before goes on as it was until it is judged.
  const bool as_it_was = in_sight && (attempt.adopted || node.registering);
  if (!attempt.superseded && !as_it_was) {
    SendVerdict(node.key, object, generation, v1::Verdict::STANDBY);
  }
}

void ObjectTable::Supersede(Object& object, Attempt& attempt) {
  // One that is stale is judged when it is registered again.
  if (attempt.superseded || attempt.stale) return;
  // The tombstone of the other one may be among what is still to be registered. This one may have
  // been adopted since, and its node not have heard of it.
  const Node* node = nodes_.Find(attempt.node);
  if ((gate_.learning() && gate_.restarted()) || (node != nullptr && node->registering)) return;
  attempt.superseded = true;
  ++context_.counters.superseded;
  if (attempt.complete && attempt.info.size_bytes != object.info.size_bytes) {
    ++object.conflicts;
    ++context_.counters.conflicts;
  }
  SendVerdict(attempt.node, object, attempt.generation, v1::Verdict::SUPERSEDED);
}

bool ObjectTable::CompleteInSight(const Object& object) const {
  // One that was adopted before may still be registered, and then wins over a tentative one: also
  // over its complete copy, so that what stands by may be that very generation.
  if (object.complete_copies == 0 || object.tentative) return false;
  return std::any_of(object.copies.begin(), object.copies.end(), [this](const auto& entry) {
    const Node* node = nodes_.Find(entry.first);
    return entry.second.complete && !entry.second.stale && node != nullptr && node->connected;
  });
}

void ObjectTable::SupersedeAll(Object& object) {
  if (!object.adopted || object.attempts.empty() || !CompleteInSight(object)) return;
  for (Attempt& attempt : object.attempts) Supersede(object, attempt);
}

void ObjectTable::NotifyStandbys(Object& object) {
  for (const Attempt& attempt : object.attempts) {
    if (!attempt.superseded && !attempt.stale) {
      SendVerdict(attempt.node, object, attempt.generation, v1::Verdict::STANDBY);
    }
  }
}

void ObjectTable::CompleteCopy(Object& object, const NodeKey& key) {
  Copy& copy = object.copies.at(key);
  if (!copy.complete) {
    copy.complete = true;
    ++object.complete_copies;
  }
  SetWriter(object, copy, false);
  copy.watermarks.clear();
  NoteChange(object.id);
  object.sealed = true;
  failures_.Erase(object.id);
  losses_.Erase(object.id);
  object.loss_reported = false;
  object.unreported_receivers.clear();
  object.void_at = Instant::Infinite();
  if (const auto want = object.wants.find(key); want != object.wants.end()) {
    copy.primary = copy.primary || want->second.keep;
  }
  listeners_.pulls->OnCopyComplete(object, key);
  if (!object.copies.at(key).unconfirmed) placements_.Arrived(object.id, key);
  SupersedeAll(object);
  listeners_.drains->OnCopiesChanged(object);
}

void ObjectTable::RemoveCopy(Object& object, const NodeKey& key) {
  const auto found = object.copies.find(key);
  if (found == object.copies.end()) return;
  NoteChange(object.id);
  const bool source = found->second.writer || found->second.complete;
  EndFinalReport(object, key);
  if (found->second.complete) --object.complete_copies;
  SetWriter(object, found->second, false);
  listeners_.pulls->OnCopyRemoved(object, key);
  object.copies.erase(found);
  if (source && object.complete_copies == 0) object.last_holder = nodes_.NameOf(key);
  if (source && object.complete_copies == 0) AwaitFinalReports(object);
  if (Node* node = nodes_.Find(key)) --node->copies;
  UnlinkNodeIfUnused(key, object);
  listeners_.drains->OnCopiesChanged(object);
}

void ObjectTable::AwaitFinalReports(Object& object) {
  for (const auto& [key, copy] : object.copies) {
    // Downstream, too: it may have had every byte from an earlier sender.
    const bool unknown = copy.stale || (copy.pull != nullptr && !copy.pull->reported);
    if (unknown && !copy.complete) object.unreported_receivers.insert(key);
  }
  if (object.unreported_receivers.empty()) return;
  object.void_at = context_.now + context_.options.lease;
  SetTimer(object, object.void_at);
}

void ObjectTable::EndFinalReport(Object& object, const NodeKey& key) {
  if (object.unreported_receivers.erase(key) != 0 && object.unreported_receivers.empty()) {
    object.void_at = Instant::Infinite();
  }
}

void ObjectTable::SetWriter(Object& object, Copy& copy, bool writes) {
  object.writers += (writes ? 1 : 0) - (copy.writer ? 1 : 0);
  copy.writer = writes;
}

void ObjectTable::Reevaluate(Object& object) {
  NoteChange(object.id);
  // A writer may still seal, also what receivers had whole before it did and lost again.
  const bool may_come = object.complete_copies > 0 || object.has_writer() ||
                        !object.unreported_receivers.empty() ||
                        listeners_.reductions->AwaitsResult(object);
  if (object.adopted && !may_come && !gate_.learning()) {
    object.sealed ? DecideLoss(object) : DecideVoid(object);
  } else if (object.complete_copies == 0 && !gate_.learning()) {
    DropInline(object);
  }
  if (!object.adopted && !object.attempts.empty()) AdoptBestAttempt(object);
  if (!object.adopted) listeners_.pulls->RefuseWants(object);
  SupersedeAll(object);
  listeners_.pulls->Plan(object);
  listeners_.pulls->DropTreeIfIdle(object);
  if (Unreferenced(object)) unreferenced_.insert(object.id);
  ReleaseIfEmpty(object);
}

void ObjectTable::DecideLoss(Object& object) {
  for (const Attempt& attempt : object.attempts) {
    if (attempt.superseded) continue;
    VoidGeneration(object, "no copy of it is left, and it was put again", NodeKey());
    return;
  }
  DropInline(object);
  losses_.Add(object.id, object.generation, object.last_holder);
  if (object.loss_reported) return;
  object.loss_reported = true;
  for (const auto& [key, want] : object.wants) SendLoss(key, object.id);
}

void ObjectTable::DecideVoid(Object& object) {
  ++context_.counters.voided;
  VoidGeneration(object, "its creator ended before it was complete", NodeKey());
}

void ObjectTable::VoidGeneration(Object& object, absl::string_view reason, const NodeKey& except) {
  absl::btree_set<NodeKey> concerned;
  for (const auto& [key, copy] : object.copies) concerned.insert(key);
  for (const auto& [key, want] : object.wants) concerned.insert(key);
  for (const NodeKey& key : concerned) {
    // A node that registers anew is told when it comes to this copy.
    const auto copy = object.copies.find(key);
    const bool stale = copy != object.copies.end() && copy->second.stale;
    if (key != except && !stale) {
      outbox_.SendGone(key, object.id, object.generation, v1::Gone::VOID, reason);
    }
  }
  for (const NodeKey& key : concerned) {
    listeners_.pulls->Requeue(object, key);
    const auto copy = object.copies.find(key);
    if (copy == object.copies.end()) continue;
    object.copies.erase(copy);
    if (Node* node = nodes_.Find(key)) --node->copies;
    UnlinkNodeIfUnused(key, object);
  }
  ForgetGeneration(object);
}

void ObjectTable::ForgetGeneration(Object& object) {
  NoteChange(object.id);
  listeners_.pulls->DropTree(object);
  object.complete_copies = 0;
  object.writers = 0;
  object.adopted = false;
  object.sealed = false;
  object.tentative = false;
  object.verdict_held = false;
  object.unreported_receivers.clear();
  object.void_at = Instant::Infinite();
  DropInline(object);
  listeners_.drains->OnCopiesChanged(object);
}

bool ObjectTable::AdoptBestAttempt(Object& object) {
  if (!gate_.MayAdoptFromAbsence()) return false;
  // What a reduction computes comes before what was put under its target meanwhile. A result that
  // is complete was committed by an earlier life of this shard.
  const std::optional<Generation> planned = listeners_.reductions->PlannedResult(object.id);
  const Attempt* best = nullptr;
  for (const Attempt& attempt : object.attempts) {
    const bool result =
        (attempt.complete && !attempt.info.reduced_from.empty()) || attempt.generation == planned;
    if (planned.has_value() && !result) continue;
    if (attempt.superseded || attempt.stale || nodes_.Find(attempt.node) == nullptr) continue;
    const bool better = best == nullptr || (attempt.complete != best->complete
                                                ? attempt.complete
                                                : attempt.generation < best->generation);
    if (better) best = &attempt;
  }
  if (best == nullptr) return false;
  const Attempt chosen = *best;
  EraseAttempt(object, chosen.generation, chosen.node);
  Adopt(object, *nodes_.Find(chosen.node), chosen.generation, chosen.info, chosen.complete,
        /*notify=*/true);
  TakePolicy(object, chosen.node, chosen.policy);
  AbsorbAttempts(object);
  if (!chosen.complete) NotifyStandbys(object);
  return true;
}

bool ObjectTable::LacksCopy(const ObjectId& id, const NodeKey& key) const {
  const Object* object = Find(id);
  const Node* node = nodes_.Find(key);
  if (gate_.learning() || node == nullptr || node->registering || node->draining) return false;
  if (object == nullptr || object->HasConfirmedCopy(key)) return false;
  const auto copy = object->copies.find(key);
  return copy == object->copies.end() || !copy->second.writer;
}

void ObjectTable::TakePolicy(const Object& object, const NodeKey& key, const BroadcastMark& mark) {
  if (mark.stamp == 0) return;
  placements_.Registered(object.id, key, mark, [this](const ObjectId& of, const NodeKey& other) {
    return LacksCopy(of, other);
  });
}

bool ObjectTable::MustLearnAbout(const ObjectId& id) const {
  const Object* object = Find(id);
  return gate_.learning() && (object == nullptr || !object->adopted || MayComeBack(*object));
}

bool ObjectTable::HasOtherCompleteCopy(const Object& object, const NodeKey& but) const {
  for (const auto& [key, copy] : object.copies) {
    if (!copy.complete || copy.stale || copy.unconfirmed || key == but) continue;
    const Node* node = nodes_.Find(key);
    if (node != nullptr && node->connected && !node->draining) return true;
  }
  return false;
}

Node* ObjectTable::FindUnconfirmed(const Object& object, const NodeKey& but) {
  for (const auto& [key, copy] : object.copies) {
    if (!copy.complete || !copy.unconfirmed || copy.stale || key == but) continue;
    Node* node = nodes_.Find(key);
    if (node != nullptr && node->connected && !node->draining && !node->registering) return node;
  }
  return nullptr;
}

void ObjectTable::ClearOwned(Object& object) {
  if (!std::exchange(object.info.owned, false)) return;
  // What is stale is told when its node registers it.
  for (const auto& [key, copy] : object.copies) {
    if (!copy.stale) outbox_.SendKept(key, object.id, object.generation);
  }
}

void ObjectTable::GrantGrace(const ObjectId& source) {
  Object* object = Find(source);
  if (object == nullptr || !object->adopted || !object->info.owned) return;
  object->gc_grace_until = context_.now + context_.options.lease;
  SetTimer(*object, object->gc_grace_until);
}

Copy& ObjectTable::AddCopy(Object& object, Node& node, bool* added) {
  const auto [copy, inserted] = object.copies.try_emplace(node.key);
  if (inserted) ++node.copies;
  if (added != nullptr) *added = inserted;
  node.objects.insert(object.id);
  return copy->second;
}

void ObjectTable::AddWriter(Object& object, const NodeKey& key) {
  Node* node = nodes_.Find(key);
  if (node == nullptr) return;
  Copy& copy = AddCopy(object, *node);
  SetWriter(object, copy, true);
  copy.primary = key == object.generation.creator;
}

absl::Status ObjectTable::CheckCopies(const Object& object) const {
  int complete = 0;
  int writers = 0;
  for (const auto& [key, copy] : object.copies) {
    const Node* node = nodes_.Find(key);
    if (node == nullptr) {
      return Broken(object,
                    absl::StrCat("a copy is listed for ", key.ToString(), ", which is down"));
    }
    if (!node->objects.contains(object.id)) return Broken(object, "a holder does not know of it");
    if (copy.complete) ++complete;
    if (copy.writer) ++writers;
    if (copy.complete && copy.writer) return Broken(object, "a complete copy is being written");
    const BroadcastTree::Member* member = object.tree == nullptr ? nullptr : object.tree->Find(key);
    if (object.tree != nullptr && member == nullptr) return Broken(object, "a copy is in no tree");
    if (member != nullptr && member->complete() != copy.complete) {
      return Broken(object, "list and tree differ on what is complete");
    }
    if (member != nullptr && member->connected != (node->connected && !copy.stale)) {
      return Broken(object, "list and tree differ on who is connected");
    }
  }
  if (complete != object.complete_copies) return Broken(object, "complete copies are miscounted");
  if (writers != object.writers) return Broken(object, "writers are miscounted");
  if (complete > 0 && !object.sealed) return Broken(object, "complete and not sealed");
  if (!object.adopted && !object.copies.empty()) return Broken(object, "copies of no generation");
  if (object.tree != nullptr && object.tree->members() != object.copies.size()) {
    return Broken(object, "the tree has members without a copy");
  }
  return absl::OkStatus();
}

const Object* ObjectTable::Find(const ObjectId& id) const {
  const auto found = objects_.find(id);
  return found == objects_.end() ? nullptr : found->second.get();
}

void ObjectTable::ReleaseIfEmpty(Object& object) {
  if (!object.copies.empty() || !object.wants.empty() || !object.attempts.empty()) return;
  if (listeners_.reductions->AwaitsResult(object)) return;
  if (MayComeBack(object)) return;
  KeepPolicy(object);
  placements_.End(object.id, absl::DataLossError("no copy of it is left"));
  if (object.inline_entry.cached() && DefectActive(Defect::kInlineKeptAfterDelete)) return;
  DropInline(object);
  if (!object.timer.infinite()) timers_.erase({object.timer, object.id});
  listeners_.drains->OnReleased(object);
  objects_.erase(object.id);
}

void ObjectTable::OnTimer(Object& object) {
  const bool unheard = std::any_of(object.unreported_receivers.begin(),
                                   object.unreported_receivers.end(), [this](const NodeKey& key) {
                                     const Node* node = nodes_.Find(key);
                                     return node != nullptr && !node->connected;
                                   });
  if (object.void_at <= context_.now && unheard) {
    // Its session is resumed or fenced before another lease has passed.
    object.void_at = context_.now + context_.options.lease;
  } else if (object.void_at <= context_.now) {
    object.unreported_receivers.clear();
    object.void_at = Instant::Infinite();
  }
  SetTimer(object, object.void_at);
  if (object.gc_grace_until > context_.now) SetTimer(object, object.gc_grace_until);
  listeners_.drains->OnTimer(object);
  Reevaluate(object);
}

void ObjectTable::Tick() {
  while (!timers_.empty() && timers_.begin()->first <= context_.now) {
    const ObjectId id = timers_.begin()->second;
    timers_.erase(timers_.begin());
    Object& object = *Find(id);
    object.timer = Instant::Infinite();
    OnTimer(object);
  }
}

void ObjectTable::NotePause(Instant until) {
  for (const auto& [when, id] : timers_) {
    Object& object = *Find(id);
    if (!object.void_at.infinite()) object.void_at = std::max(object.void_at, until);
  }
}

Instant ObjectTable::NextDeadline() const {
  return timers_.empty() ? Instant::Infinite() : timers_.begin()->first;
}

void ObjectTable::NodeDown(const Node& node) {
  for (const ObjectId& id : Sorted(node.objects)) {
    Object* object = Find(id);
    if (object == nullptr) continue;
    listeners_.pulls->EndWant(*object, node.key);
    if (object->copies.contains(node.key) && !DefectActive(Defect::kCopyListKeepsDeadNode)) {
      RemoveCopy(*object, node.key);
    }
    EraseAttempts(*object, [&node](const Attempt& a) { return a.node == node.key; });
    listeners_.drains->OnNodeLeft(*object, node.key);
    Reevaluate(*object);
  }
}

void ObjectTable::SessionBegins(Node& node) {
  for (const ObjectId& id : Sorted(node.objects)) {
    Object* object = Find(id);
    if (object == nullptr) continue;
    const bool awaited = object->unreported_receivers.contains(node.key);
    listeners_.pulls->EndWant(*object, node.key);
    listeners_.drains->OnNodeLeft(*object, node.key);
    if (const auto copy = object->copies.find(node.key); copy != object->copies.end()) {
      copy->second.stale = true;
      if (awaited) AwaitFinalReports(*object);
      listeners_.pulls->SetConnected(*object, node.key, false);
    }
    for (Attempt& attempt : object->attempts) {
      if (attempt.node == node.key) attempt.stale = true;
    }
    UnlinkNodeIfUnused(node.key, *object);
    Reevaluate(*object);
  }
}

void ObjectTable::SessionRegistered(Node& node) {
  RemoveStale(node);
  for (const ObjectId& id : Sorted(node.objects)) {
    Object* object = Find(id);
    if (object == nullptr) continue;
    SupersedeAll(*object);
    if (listeners_.pulls->AdmitRegisteredWant(*object, node)) Reevaluate(*object);
  }
}

void ObjectTable::SetConnected(Node& node, bool connected) {
  for (const ObjectId& id : Sorted(node.objects)) {
    Object* object = Find(id);
    if (object == nullptr) continue;
    const auto copy = object->copies.find(node.key);
    const bool stale = copy != object->copies.end() && copy->second.stale;
    listeners_.pulls->SetConnected(*object, node.key, connected && !stale);
    if (!connected) continue;
    SupersedeAll(*object);
    listeners_.pulls->Plan(*object);
  }
}

void ObjectTable::EndLearning() {
  std::vector<ObjectId> ids;
  ids.reserve(objects_.size());
  for (const auto& [id, object] : objects_) ids.push_back(id);
  for (const ObjectId& id : ids) {
    Object* object = Find(id);
    if (object == nullptr) continue;
    object->tentative = false;
    if (object->verdict_held) ReportAdopted(*object);
    listeners_.pulls->RequeueOutsidePulls(*object);
    Reevaluate(*object);
  }
}

absl::StatusOr<ObjectTable::Announcement> ObjectTable::ParseAnnouncement(
    const v1::AnnounceCreate& m) {
  Announcement announced;
  PHALANX_ASSIGN_OR_RETURN(announced.generation, ParseGeneration(m.generation()));
  PHALANX_ASSIGN_OR_RETURN(announced.info, ParseObjectInfo(m.info()));
  PHALANX_RETURN_IF_ERROR(
      ValidateInline(announced.info.size_bytes, m.complete(), m.has_inline(), m.inline_bytes()));
  announced.complete = m.complete();
  if (m.has_inline()) announced.inline_bytes = &m.inline_bytes();
  return announced;
}

absl::Status ObjectTable::OnCreate(Node& node, const v1::AnnounceCreate& m) {
  PHALANX_ASSIGN_OR_RETURN(const ObjectId id, ParseObjectId(m.object_id()));
  PHALANX_ASSIGN_OR_RETURN(Announcement announced, ParseAnnouncement(m));
  ++context_.counters.creates;
  PHALANX_ASSIGN_OR_RETURN(Object* const object, BeginCreate(node, id, announced.generation));
  if (object == nullptr) return absl::OkStatus();
  const bool may_adopt = gate_.MayAdoptFromAbsence() && !listeners_.reductions->IsReducing(id);
  PHALANX_RETURN_IF_ERROR(FinishCreate(*object, node, std::move(announced), may_adopt));
  Reevaluate(*object);
  return absl::OkStatus();
}

absl::StatusOr<Object*> ObjectTable::BeginCreate(Node& node, const ObjectId& id,
                                                 const Generation& generation) {
  if (generation.creator != node.key) {
    return absl::InvalidArgumentError("generation: another node has created it");
  }
  if (Tombstone* tombstone = tombstones_.FindRefusing(id, generation)) {
    tombstones_.AwaitConfirm(*tombstone, id, generation, node.key, node.session);
    outbox_.SendVerdict(node.key, id, generation, v1::Verdict::DELETED);
    return nullptr;
  }
  return &GetOrCreate(id);
}

absl::Status ObjectTable::FinishCreate(Object& object, Node& node, Announcement announced,
                                       bool may_adopt) {
  const Generation generation = announced.generation;
  const bool current = object.adopted && object.generation == generation;
  if (current && !(object.info == announced.info)) {
    return absl::InvalidArgumentError("info: it differs from what was announced");
  }
  if (current) {
    ReportAdopted(object);
    if (announced.complete && object.copies.contains(node.key)) CompleteCopy(object, node.key);
  } else if (!object.adopted && may_adopt) {
    // The node may have registered the generation before this announcement.
    EraseAttempt(object, generation, node.key);
    Adopt(object, node, generation, std::move(announced.info), announced.complete,
          /*notify=*/true);
  } else {
    StandBy(object, node, generation, std::move(announced.info), announced.complete);
  }
  const bool adopted = object.adopted && object.generation == generation;
  if (adopted && announced.inline_bytes != nullptr) CacheInline(object, *announced.inline_bytes);
  return absl::OkStatus();
}

absl::Status ObjectTable::OnFail(Node& node, const v1::FailRequest& m) {
  PHALANX_ASSIGN_OR_RETURN(const ObjectId id, ParseObjectId(m.object_id()));
  Object* object = Find(id);
  v1::FailReply& reply = *outbox_.Send(node.key).mutable_fail_reply();
  reply.set_request_id(m.request_id());
  if (m.code() <= 0 || m.code() > static_cast<int>(absl::StatusCode::kUnauthenticated)) {
    reply.set_code(static_cast<int>(absl::StatusCode::kInvalidArgument));
    reply.set_message(absl::StrCat("object ", id.hex(), ": ", m.code(), " is no error's code"));
    return absl::OkStatus();
  }
  if (object != nullptr && object->adopted && object->complete_copies > 0) {
    reply.set_code(static_cast<int>(absl::StatusCode::kAlreadyExists));
    reply.set_message(absl::StrCat("object ", id.hex(), " was put; it cannot fail any more"));
    return absl::OkStatus();
  }
  failures_.Set(id, absl::Status(static_cast<absl::StatusCode>(m.code()), m.message()));
  NoteChange(id);
  if (object != nullptr) Reevaluate(*object);
  return absl::OkStatus();
}

void ObjectTable::ForgetDeleted(Object& object) {
  // MayComeBack must not keep it.
  object.adopted = false;
  ReleaseIfEmpty(object);
}

bool ObjectTable::Unreferenced(const Object& object) const {
  return object.adopted && object.info.owned && !holds_.Held(object.id);
}

void ObjectTable::SendVerdict(const NodeKey& to, const Object& object, const Generation& generation,
                              v1::Verdict::Kind kind) {
  if (kind == v1::Verdict::STANDBY || kind == v1::Verdict::SUPERSEDED) {
    outbox_.SendVerdict(to, object.id, generation, kind, object.generation, object.info);
  } else {
    outbox_.SendVerdict(to, object.id, generation, kind);
  }
}

void ObjectTable::SendLoss(const NodeKey& to, const ObjectId& id) {
  const LostObject* lost = losses_.Find(id);
  // A running reduction computes it again.
  if (lost == nullptr || listeners_.reductions->IsReducing(id)) return;
  v1::Gone& gone = *outbox_.Send(to).mutable_gone();
  gone.set_object_id(id.binary().data(), ObjectId::kSize);
  gone.set_kind(v1::Gone::LOST);
  gone.set_reason(lost->reason);
}

void ObjectTable::CacheInline(Object& object, const std::string& bytes) {
  if (!inline_cache_.Add(object.id, object.inline_entry, bytes)) return;
  while (inline_cache_.over_limit()) DropInline(*Find(ObjectId(inline_cache_.oldest())));
}

void ObjectTable::DropInline(Object& object) {
  if (!object.inline_entry.cached()) return;
  NoteChange(object.id);
  inline_cache_.Remove(object.inline_entry);
}

void ObjectTable::KeepPolicy(const Object& object) {
  const BroadcastMark* policy = placements_.MarkOf(object.id);
  if (policy != nullptr) losses_.SetPolicy(object.id, *policy);
}

void ObjectTable::RestorePolicy(const Object& object) {
  const LostObject* lost = losses_.Find(object.id);
  if (lost == nullptr) return;
  placements_.Merge(object.id, lost->policy,
                    [this](const ObjectId& of, const NodeKey& key) { return LacksCopy(of, key); });
}

void ObjectTable::RestartPlacement(const Object& object) {
  placements_.BeginAnew(
      object.id, [this](const ObjectId& of, const NodeKey& key) { return LacksCopy(of, key); });
}

absl::Status ObjectTable::CheckObject(const Object& object) const {
  const bool listed = !object.copies.empty() || !object.wants.empty() || !object.attempts.empty();
  if (!listed && !listeners_.reductions->AwaitsResult(object) && !MayComeBack(object)) {
    return Broken(object, "state without copies, wants or standbys");
  }
  for (const Attempt& attempt : object.attempts) {
    if (nodes_.Find(attempt.node) == nullptr) return Broken(object, "a standby's node is down");
    if (object.adopted && attempt.generation == object.generation) {
      return Broken(object, "the adopted generation stands by");
    }
  }
  if (absl::Status status = CheckCopies(object); !status.ok()) return status;
  const InlineCache::Entry& entry = object.inline_entry;
  if (entry.cached() && entry.bytes().size() != object.info.size_bytes) {
    return Broken(object, "inline bytes of another size");
  }
  if (entry.cached() && object.complete_copies == 0 && !gate_.learning()) {
    return Broken(object, "inline bytes without a copy");
  }
  return absl::OkStatus();
}

absl::Status ObjectTable::CheckInvariants() const {
  absl::btree_map<NodeKey, uint64_t> copies;
  uint64_t inline_bytes = 0;
  for (const auto& [id, object] : objects_) {
    PHALANX_RETURN_IF_ERROR(CheckObject(*object));
    for (const auto& [key, copy] : object->copies) ++copies[key];
    inline_bytes += object->inline_entry.bytes().size();
  }
  if (inline_bytes != inline_cache_.bytes() || inline_cache_.over_limit()) {
    return absl::InternalError("the inline cache is miscounted");
  }
  for (const auto& [key, node] : nodes_.all()) {
    if (copies[key] != node->copies) {
      return absl::InternalError(
          absl::StrCat("node ", node->info.name(), ": its copies are miscounted"));
    }
    for (const ObjectId& id : node->objects) {
      if (Find(id) == nullptr) {
        return absl::InternalError(
            absl::StrCat("node ", node->info.name(), " is linked to no object, ", id.hex()));
      }
    }
  }
  return absl::OkStatus();
}

}  // namespace phalanx::directory
