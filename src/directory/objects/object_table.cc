#include "src/directory/objects/object_table.h"

#include <algorithm>
#include <optional>

#include "absl/strings/str_cat.h"
#include "src/common/check.h"
#include "src/common/defects.h"
#include "src/common/status_macros.h"

namespace phalanx::directory {

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
      expiries_(parts.expiries),
      scopes_(parts.scopes),
      listeners_(listeners),
      standbys_({context_, nodes_, outbox_, gate_, tombstones_, scopes_, *this, listeners_}) {}

Object* ObjectTable::Find(const ObjectId& id) {
  const auto found = objects_.find(id);
  return found == objects_.end() ? nullptr : found->second.get();
}

Object& ObjectTable::GetOrCreate(const ObjectId& id) {
  auto [at, added] = objects_.try_emplace(id);
  if (added) at->second = std::make_unique<Object>(id, context_.now);
  return *at->second;
}

bool ObjectTable::MayComeBack(const Object& object) const {
  // A generation that was never sealed is not waited for: it is void without its writer.
  return object.sealed() && object.copies.empty() && gate_.learning();
}

void ObjectTable::UnlinkNodeIfUnused(const NodeKey& key, Object& object) {
  Node* node = nodes_.Find(key);
  if (node == nullptr || object.copies.contains(key) || object.wants.contains(key)) return;
  // The target has nothing of the object yet, but NodeDown must find the object and choose another.
  if (object.drain_target == key) return;
  for (const Standby& standby : object.standbys) {
    if (standby.node == key) return;
  }
  node->objects.erase(object.id);
}

void ObjectTable::SetTimer(Object& object, Instant when) {
  // One timer serves every wait of the object: the earliest counts, and OnTimer sets the next.
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
  // A generation that stands by is sealed like an adopted one: its node does not wait for the
  // verdict.
  if (Standby* standby = object->FindStandby(generation, node.key)) {
    PHALANX_RETURN_IF_ERROR(
        ValidateInline(standby->info.size_bytes, true, m.has_inline(), m.inline_bytes()));
    if (standby->complete) return absl::OkStatus();
    standby->complete = true;
    if (standby->superseded && standby->info.size_bytes != object->info.size_bytes) {
      ++object->conflicts;
      ++context_.counters.conflicts;
    }
    if (!standby->superseded && DefectActive(Defect::kStandbyAdoptedEarly)) {
      VoidGeneration(*object, "another generation was complete first", NodeKey());
    }
    Reevaluate(*object);
    return absl::OkStatus();
  }
  const bool current = object->IsAdopted(generation) && object->copies.contains(node.key);
  if (!current) {
    ++context_.counters.late_messages;
    return absl::OkStatus();
  }
  PHALANX_RETURN_IF_ERROR(
      ValidateInline(object->info.size_bytes, true, m.has_inline(), m.inline_bytes()));
  // Before the bytes are cached: cached bytes without a complete copy would break an invariant.
  CompleteCopy(*object, node.key);
  if (m.has_inline()) CacheInline(*object, m.inline_bytes());
  Reevaluate(*object);
  return absl::OkStatus();
}

absl::Status ObjectTable::OnWithdraw(Node& node, const v1::Withdraw& m) {
  PHALANX_ASSIGN_OR_RETURN(const ObjectId id, ParseObjectId(m.object_id()));
  PHALANX_ASSIGN_OR_RETURN(const Generation generation, ParseGeneration(m.generation()));
  // A node that drops a copy on its own has dropped what a Delete asked it to drop.
  tombstones_.Confirm(id, generation, node.key);
  Object* object = Find(id);
  if (object == nullptr) return absl::OkStatus();
  if (object->IsAdopted(generation) && object->copies.contains(node.key)) {
    RemoveCopy(*object, node.key);
    // The node has dropped what it was sent, so its want must not be served again at once.
    listeners_.pulls->Postpone(*object, node.key);
  }
  object->EraseStandby(generation, node.key);
  UnlinkNodeIfUnused(node.key, *object);
  Reevaluate(*object);
  return absl::OkStatus();
}

void ObjectTable::Adopt(Object& object, Node& node, const Generation& generation, ObjectInfo info,
                        bool complete, bool notify) {
  PHALANX_CHECK(!object.adopted() && object.copies.empty(), "one generation at a time");
  object.phase_ = ObjectPhase::kWriting;
  // While nodes register, one of them may have an older adopted generation.
  object.provisional = gate_.learning();
  object.first_plan = context_.NewPlan();
  object.generation = generation;
  object.SetInfo(std::move(info));
  object.since = context_.now;
  expiries_.Set(object.id, context_.now + object.info.ttl);
  scopes_.Add(object.info.scope, object.id);
  ++context_.counters.adopted;
  // A Put ends an earlier failure, loss or deletion of the id: Gets wait for the new generation. A
  // reduction that begins has done so; a part of a result that was given up since must not.
  if (complete || object.info.reduced_from.empty()) failures_.Erase(object.id);
  losses_.Erase(object.id);
  tombstones_.Revive(object.id);
  Copy& copy = AddCopy(object, node);
  copy.primary = true;
  // CompleteCopy, below, changes a copy that is not complete; kReceiving is the state without
  // effects.
  object.copies.SetState(copy, complete ? CopyState::kReceiving : CopyState::kWriting);
  if (notify) ReportAdopted(object);
  listeners_.placements->OnAdopted(object);
  if (complete) CompleteCopy(object, node.key);
}

void ObjectTable::ReportAdopted(Object& object) {
  // ADOPTED acknowledges a Put that waits for adoption. A provisional generation can still give way
  // to an older one, and then the acknowledged object would be gone.
  object.verdict_held = object.provisional;
  if (object.provisional || !object.copies.contains(object.generation.creator)) return;
  outbox_.SendVerdict(object.generation.creator, object.id, object.generation,
                      v1::Verdict::ADOPTED);
}

void ObjectTable::CompleteCopy(Object& object, const NodeKey& key, CopyState state) {
  Copy& copy = object.copies.at(key);
  // A delivered copy stays unconfirmed until its node reports it.
  if (!copy.complete()) object.copies.SetState(copy, state);
  copy.watermarks.clear();
  NoteChange(object.id);
  object.phase_ = ObjectPhase::kSealed;
  failures_.Erase(object.id);
  losses_.Erase(object.id);
  // No report can change the decision any more: a complete copy exists.
  object.final_reports.Clear();
  // Before OnCopyComplete, which ends the want.
  if (const auto want = object.wants.find(key); want != object.wants.end()) {
    copy.primary = copy.primary || want->second.keep;
  }
  listeners_.pulls->OnCopyComplete(object, key);
  // A delivered copy may still be withdrawn: a broadcast must not count it.
  if (!object.copies.at(key).unconfirmed()) listeners_.placements->OnCopyConfirmed(object, key);
  standbys_.SupersedeAll(object);
  listeners_.drains->OnCopiesChanged(object);
  listeners_.placements->OnCopiesChanged(object);
}

void ObjectTable::ConfirmCopy(Object& object, Copy& copy) {
  if (copy.unconfirmed()) object.copies.SetState(copy, CopyState::kComplete);
}

void ObjectTable::RemoveCopy(Object& object, const NodeKey& key) {
  const auto found = object.copies.find(key);
  if (found == object.copies.end()) return;
  NoteChange(object.id);
  const bool source = found->second.writing() || found->second.complete();
  EndFinalReport(object, key);
  // Before its receivers wait again: the copy is no source for them any more.
  object.copies.SetState(found->second, CopyState::kReceiving);
  listeners_.pulls->OnCopyRemoved(object, key);
  object.copies.Remove(found);
  // Before the node's name is forgotten: the reason of a loss names the last holder.
  if (source && object.copies.complete() == 0) {
    object.last_holder = nodes_.NameOf(key);
    AwaitFinalReports(object);
  }
  if (Node* node = nodes_.Find(key)) --node->copies;
  UnlinkNodeIfUnused(key, object);
  listeners_.drains->OnCopiesChanged(object);
  listeners_.placements->OnCopiesChanged(object);
}

void ObjectTable::AwaitFinalReports(Object& object) {
  FinalReports& reports = object.final_reports;
  for (const auto& [key, copy] : object.copies) {
    // Also receivers that are not fed any more: an earlier sender may have sent them every byte.
    const bool unknown = copy.stale || (copy.pull != nullptr && !copy.pull->reported);
    if (unknown && !copy.complete()) reports.awaited.insert(key);
  }
  if (reports.awaited.empty()) return;
  // A lease at most: by then every receiver that can report has done so. OnTimer waits longer for
  // one that is disconnected.
  reports.deadline = context_.now + context_.options.lease;
  SetTimer(object, reports.deadline);
}

void ObjectTable::EndFinalReport(Object& object, const NodeKey& key) {
  FinalReports& reports = object.final_reports;
  if (reports.awaited.erase(key) != 0 && reports.awaited.empty()) reports.Clear();
}

void ObjectTable::Reevaluate(Object& object) {
  NoteChange(object.id);
  // A writer may still seal, even if receivers were complete before it and were lost again.
  const bool may_come = object.copies.complete() > 0 || object.copies.writing() > 0 ||
                        !object.final_reports.awaited.empty() ||
                        listeners_.reductions->AwaitsResult(object);
  // While the gate is learning nothing is lost or void: a copy may still be registered.
  if (object.adopted() && !may_come && !gate_.learning()) {
    object.sealed() ? DecideLoss(object) : DecideVoid(object);
  } else if (object.copies.complete() == 0 && !gate_.learning()) {
    DropInline(object);
  }
  // Before RefuseWants: a generation that stands by answers the wants that would be refused.
  if (!object.adopted() && !object.standbys.empty()) standbys_.AdoptBest(object);
  if (!object.adopted()) listeners_.pulls->RefuseWants(object);
  standbys_.SupersedeAll(object);
  listeners_.pulls->Plan(object);
  listeners_.pulls->DropTreeIfIdle(object);
  if (Unreferenced(object)) unreferenced_.insert(object.id);
  // Last: the object may be gone after it.
  ReleaseIfEmpty(object);
}

void ObjectTable::DecideLoss(Object& object) {
  // The id was put again while the last copies were going: waiting nodes get that generation, and
  // never learn of a loss.
  for (const Standby& standby : object.standbys) {
    if (standby.superseded) continue;
    VoidGeneration(object, "no copy of it is left, and it was put again", NodeKey());
    return;
  }
  DropInline(object);
  losses_.Add(object.id, object.generation, object.last_holder);
  // Each waiting node is notified once, however often the lost object is looked at.
  if (object.phase() == ObjectPhase::kLost) return;
  object.phase_ = ObjectPhase::kLost;
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
  // Nodes that merely want the object are notified as well: their streaming readers get Aborted.
  for (const NodeKey& key : concerned) {
    // A node in a new session is notified when it registers this copy.
    const auto copy = object.copies.find(key);
    const bool stale = copy != object.copies.end() && copy->second.stale;
    if (key != except && !stale) {
      outbox_.SendVoid(key, object.id, object.generation, reason);
    }
  }
  for (const NodeKey& key : concerned) {
    listeners_.pulls->Requeue(object, key);
    const auto copy = object.copies.find(key);
    if (copy == object.copies.end()) continue;
    object.copies.Remove(copy);
    if (Node* node = nodes_.Find(key)) --node->copies;
    UnlinkNodeIfUnused(key, object);
  }
  ForgetGeneration(object);
}

void ObjectTable::ForgetGeneration(Object& object) {
  NoteChange(object.id);
  listeners_.pulls->DropTree(object);
  object.phase_ = ObjectPhase::kAbsent;
  object.provisional = false;
  object.verdict_held = false;
  object.final_reports.Clear();
  // The time to live and the scope were the generation's.
  expiries_.Set(object.id, Instant::Infinite());
  scopes_.Remove(object.info.scope, object.id);
  // Bytes of a generation that is given up must not answer a Want for the next one.
  DropInline(object);
  listeners_.drains->OnCopiesChanged(object);
  listeners_.placements->OnCopiesChanged(object);
}

bool ObjectTable::MustLearnAbout(const ObjectId& id) const {
  const Object* object = Find(id);
  return gate_.learning() && (object == nullptr || !object->adopted() || MayComeBack(*object));
}

void ObjectTable::ClearOwned(Object& object) {
  if (!std::exchange(object.info.owned, false)) return;
  // The node of a stale copy is notified when it registers the copy.
  for (const auto& [key, copy] : object.copies) {
    if (!copy.stale) outbox_.SendKept(key, object.id, object.generation);
  }
}

void ObjectTable::GrantGrace(const ObjectId& source) {
  // The proxy of another shard's reduction is gone. That shard watches the source through another
  // node within a lease, and until then no reference may be visible here.
  Object* object = Find(source);
  if (object == nullptr || !object->adopted() || !object->info.owned) return;
  object->gc_grace_until = context_.now + context_.options.lease;
  SetTimer(*object, object->gc_grace_until);
}

Copy& ObjectTable::AddCopy(Object& object, Node& node) {
  const auto [copy, added] = object.copies.Add(node.key);
  if (added) ++node.copies;
  node.objects.insert(object.id);
  return copy;
}

void ObjectTable::AddWriter(Object& object, const NodeKey& key) {
  Node* node = nodes_.Find(key);
  if (node == nullptr) return;
  Copy& copy = AddCopy(object, *node);
  object.copies.SetState(copy, CopyState::kWriting);
  copy.primary = key == object.generation.creator;
}

absl::Status ObjectTable::CheckCopies(const Object& object) const {
  int complete = 0;
  int writing = 0;
  for (const auto& [key, copy] : object.copies) {
    const Node* node = nodes_.Find(key);
    if (node == nullptr) {
      return Broken(object,
                    absl::StrCat("a copy is listed for ", key.ToString(), ", which is down"));
    }
    if (!node->objects.contains(object.id)) return Broken(object, "a holder does not know of it");
    if (copy.complete()) ++complete;
    if (copy.writing()) ++writing;
    for (const RelayTree* tree : object.trees.all()) {
      const RelayTree::Member* member = tree->Find(key);
      if (member == nullptr) return Broken(object, "a copy is in no tree");
      if (member->complete() != copy.complete()) {
        return Broken(object, "list and tree differ on what is complete");
      }
      if (member->connected != object.Offers(*node, copy, gate_.learning())) {
        return Broken(object, "list and tree differ on a connection");
      }
      if (member->draining != node->draining) {
        return Broken(object, "node and tree differ on a drain");
      }
    }
  }
  if (complete != object.copies.complete()) return Broken(object, "complete copies are miscounted");
  if (writing != object.copies.writing()) return Broken(object, "writers are miscounted");
  if (complete > 0 && !object.sealed()) return Broken(object, "complete and not sealed");
  if (!object.adopted() && !object.copies.empty()) return Broken(object, "copies of no generation");
  for (const RelayTree* tree : object.trees.all()) {
    if (tree->members() != object.copies.size()) {
      return Broken(object, "the tree has members without a copy");
    }
  }
  return absl::OkStatus();
}

const Object* ObjectTable::Find(const ObjectId& id) const {
  const auto found = objects_.find(id);
  return found == objects_.end() ? nullptr : found->second.get();
}

void ObjectTable::ReleaseIfEmpty(Object& object) {
  if (!object.copies.empty() || !object.wants.empty() || !object.standbys.empty()) return;
  if (listeners_.reductions->AwaitsResult(object)) return;
  // Kept while a node may still register a copy: a loss is decided when the gate opens.
  if (MayComeBack(object)) return;
  // Before the object is erased: the policy of a lost object moves to the record of the loss.
  listeners_.placements->OnReleased(object);
  if (object.inline_entry.cached() && DefectActive(Defect::kInlineKeptAfterDelete)) return;
  DropInline(object);
  if (!object.timer.infinite()) timers_.erase({object.timer, object.id});
  // Of a lost object. A node that returns with a copy registers what is left of its time.
  expiries_.Set(object.id, Instant::Infinite());
  scopes_.Remove(object.info.scope, object.id);
  listeners_.drains->OnReleased(object);
  listeners_.pulls->DropTree(object);
  objects_.erase(object.id);
}

void ObjectTable::OnTimer(Object& object) {
  FinalReports& reports = object.final_reports;
  const bool unreachable =
      std::any_of(reports.awaited.begin(), reports.awaited.end(), [this](const NodeKey& key) {
        const Node* node = nodes_.Find(key);
        return node != nullptr && !node->connected;
      });
  if (reports.deadline <= context_.now && unreachable) {
    // The node's session is resumed or fenced before another lease has passed.
    reports.deadline = context_.now + context_.options.lease;
  } else if (reports.deadline <= context_.now) {
    reports.Clear();
  }
  SetTimer(object, reports.deadline);
  if (object.gc_grace_until > context_.now) SetTimer(object, object.gc_grace_until);
  // A node that had refused the object for a pause may be asked again.
  listeners_.drains->OnTimer(object);
  Reevaluate(object);
}

void ObjectTable::Tick() {
  while (!timers_.empty() && timers_.begin()->first <= context_.now) {
    const ObjectId id = timers_.begin()->second;
    timers_.erase(timers_.begin());
    Object& object = *Find(id);
    // Reset before OnTimer: SetTimer ignores any time that is not earlier than the current one.
    object.timer = Instant::Infinite();
    OnTimer(object);
  }
}

void ObjectTable::NotePause(Instant until) {
  for (const auto& [when, id] : timers_) {
    Object& object = *Find(id);
    // The reports can lie unread in the sockets of the process that was stopped.
    Instant& deadline = object.final_reports.deadline;
    if (!deadline.infinite()) deadline = std::max(deadline, until);
  }
}

Instant ObjectTable::NextDeadline() const {
  return timers_.empty() ? Instant::Infinite() : timers_.begin()->first;
}

void ObjectTable::NodeDown(const Node& node) {
  for (const ObjectId& id : Sorted(node.objects)) {
    Object* object = Find(id);
    if (object == nullptr) continue;
    // Before the copy goes, which would put the want back in the queue.
    listeners_.pulls->EndWant(*object, node.key);
    if (object->copies.contains(node.key) && !DefectActive(Defect::kCopyListKeepsDeadNode)) {
      RemoveCopy(*object, node.key);
    }
    std::erase_if(object->standbys, [&node](const Standby& s) { return s.node == node.key; });
    listeners_.drains->OnNodeLeft(*object, node.key);
    Reevaluate(*object);
  }
}

void ObjectTable::SessionBegins(Node& node) {
  for (const ObjectId& id : Sorted(node.objects)) {
    Object* object = Find(id);
    if (object == nullptr) continue;
    const bool awaited = object->final_reports.awaited.contains(node.key);
    // The new session registers its wants again.
    listeners_.pulls->EndWant(*object, node.key);
    listeners_.drains->OnNodeLeft(*object, node.key);
    if (const auto copy = object->copies.find(node.key); copy != object->copies.end()) {
      copy->second.stale = true;
      // EndWant took the node out of the awaited reports; a stale receiver may be complete.
      if (awaited) AwaitFinalReports(*object);
      // No receiver is assigned to a stale copy, since the node may not have it any more. Receivers
      // that pull from it already continue.
      listeners_.pulls->SetConnected(*object, node.key, false);
    }
    for (Standby& standby : object->standbys) {
      if (standby.node == node.key) standby.stale = true;
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
    // Nothing was superseded on the node while it registered.
    standbys_.SupersedeAll(*object);
    if (listeners_.pulls->AdmitRegisteredWant(*object, node)) Reevaluate(*object);
  }
}

void ObjectTable::SetConnected(Node& node, bool connected) {
  for (const ObjectId& id : Sorted(node.objects)) {
    Object* object = Find(id);
    if (object == nullptr) continue;
    const auto copy = object->copies.find(node.key);
    const bool offered =
        copy == object->copies.end() || object->Offers(node, copy->second, gate_.learning());
    listeners_.pulls->SetConnected(*object, node.key, connected && offered);
    // A broken session takes a sender away, which makes nothing possible that was not before.
    if (!connected) continue;
    standbys_.SupersedeAll(*object);
    listeners_.pulls->Plan(*object);
  }
}

void ObjectTable::EndLearning() {
  // Ids, not objects: Reevaluate erases objects.
  std::vector<ObjectId> ids;
  ids.reserve(objects_.size());
  for (const auto& [id, object] : objects_) ids.push_back(id);
  for (const ObjectId& id : ids) {
    Object* object = Find(id);
    if (object == nullptr) continue;
    // No older adopted generation was registered.
    object->provisional = false;
    if (object->verdict_held) ReportAdopted(*object);
    listeners_.pulls->RequeueOutsidePulls(*object);
    Reevaluate(*object);
  }
}

absl::StatusOr<Announcement> ParseAnnouncement(const v1::AnnounceCreate& m) {
  Announcement announced;
  PHALANX_ASSIGN_OR_RETURN(announced.generation, ParseGeneration(m.generation()));
  PHALANX_ASSIGN_OR_RETURN(announced.info, ParseObjectInfo(m.info()));
  PHALANX_RETURN_IF_ERROR(
      ValidateInline(announced.info.size_bytes, m.complete(), m.has_inline(), m.inline_bytes()));
  announced.complete = m.complete();
  if (m.has_inline()) announced.inline_bytes = &m.inline_bytes();
  PHALANX_ASSIGN_OR_RETURN(announced.policy, ParsePolicy(m.mark()));
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
    tombstones_.AwaitConfirm(*tombstone, generation, node.key, node.session);
    // The generation was deleted before: a late announcement must not bring it back.
    outbox_.SendVerdict(node.key, id, generation, v1::Verdict::DELETED);
    return nullptr;
  }
  return &GetOrCreate(id);
}

absl::Status ObjectTable::FinishCreate(Object& object, Node& node, Announcement announced,
                                       bool may_adopt) {
  const Generation generation = announced.generation;
  const bool current = object.IsAdopted(generation);
  if (current && !(object.info == announced.info)) {
    return absl::InvalidArgumentError("info: it differs from what was announced");
  }
  object.LearnName(announced.info.name);
  if (current) {
    ReportAdopted(object);
    if (announced.complete && object.copies.contains(node.key)) CompleteCopy(object, node.key);
  } else if (!object.adopted() && may_adopt) {
    // The node may have registered the generation before this announcement.
    object.EraseStandby(generation, node.key);
    Adopt(object, node, generation, std::move(announced.info), announced.complete,
          /*notify=*/true);
    if (announced.policy.stamp != 0) {
      object.copies.at(node.key).registered_stamp = announced.policy.stamp;
      listeners_.placements->OnPolicyRegistered(object, node.key, announced.policy);
    }
  } else {
    standbys_.Add(object, node,
                  Standby{.generation = generation,
                          .node = node.key,
                          .info = std::move(announced.info),
                          .complete = announced.complete,
                          .policy = announced.policy});
  }
  if (object.IsAdopted(generation) && announced.inline_bytes != nullptr)
    CacheInline(object, *announced.inline_bytes);
  return absl::OkStatus();
}

void ObjectTable::ForgetDeleted(Object& object) {
  // Otherwise MayComeBack keeps it.
  object.phase_ = ObjectPhase::kAbsent;
  expiries_.Set(object.id, Instant::Infinite());
  scopes_.Remove(object.info.scope, object.id);
  ReleaseIfEmpty(object);
}

void ObjectTable::WriteInfo(const Object& object, Instant now, v1::ObjectInfo* out) const {
  ToProto(object.info, out);
  SetTtl(ExpiryOf(object) - now, out);
}

bool ObjectTable::Unreferenced(const Object& object) const {
  return object.adopted() && object.info.owned && !holds_.Held(object.id);
}

void ObjectTable::SendLoss(const NodeKey& to, const ObjectId& id) {
  const LostObject* lost = losses_.Find(id);
  // A running reduction computes its result again.
  if (lost == nullptr || listeners_.reductions->IsReducing(id)) return;
  outbox_.SendLost(to, id, lost->reason);
}

void ObjectTable::CacheInline(Object& object, const std::string& bytes) {
  if (!inline_cache_.Add(object.id, object.inline_entry, bytes)) return;
  // The new entry is the youngest, so it goes last.
  while (inline_cache_.over_limit()) DropInline(*Find(ObjectId(inline_cache_.oldest())));
}

void ObjectTable::DropInline(Object& object) {
  if (!object.inline_entry.cached()) return;
  NoteChange(object.id);
  inline_cache_.Remove(object.inline_entry);
}

absl::Status ObjectTable::CheckObject(const Object& object) const {
  const bool listed = !object.copies.empty() || !object.wants.empty() || !object.standbys.empty();
  if (!listed && !listeners_.reductions->AwaitsResult(object) && !MayComeBack(object)) {
    return Broken(object, "state without copies, wants or standbys");
  }
  for (const Standby& standby : object.standbys) {
    if (nodes_.Find(standby.node) == nullptr) return Broken(object, "a standby's node is down");
    if (object.IsAdopted(standby.generation)) {
      return Broken(object, "the adopted generation stands by");
    }
  }
  if (absl::Status status = CheckCopies(object); !status.ok()) return status;
  const InlineCache::Entry& entry = object.inline_entry;
  if (entry.cached() && entry.bytes().size() != object.info.size_bytes) {
    return Broken(object, "inline bytes of another size");
  }
  if (entry.cached() && object.copies.complete() == 0 && !gate_.learning()) {
    return Broken(object, "inline bytes without a copy");
  }
  return absl::OkStatus();
}

absl::Status ObjectTable::CheckInvariants() const {
  absl::btree_map<NodeKey, uint64_t> copies;
  uint64_t inline_bytes = 0;
  size_t expiring = 0;
  size_t scoped = 0;
  for (const auto& [id, object] : objects_) {
    PHALANX_RETURN_IF_ERROR(CheckObject(*object));
    for (const auto& [key, copy] : object->copies) ++copies[key];
    if (object->adopted() && !ExpiryOf(*object).infinite()) ++expiring;
    if (object->adopted() && !object->info.scope.empty()) ++scoped;
    inline_bytes += object->inline_entry.bytes().size();
  }
  if (inline_bytes != inline_cache_.bytes() || inline_cache_.over_limit()) {
    return absl::InternalError("the inline cache is miscounted");
  }
  if (scoped != scopes_.objects()) {
    return absl::InternalError("a scope lists another object than an adopted one");
  }
  if (expiring != expiries_.size()) {
    return absl::InternalError("a time to live belongs to no adopted generation");
  }
  PHALANX_RETURN_IF_ERROR(expiries_.CheckInvariants());
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
