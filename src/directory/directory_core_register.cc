// What nodes tell when they open a new session, and the first lease after a start, in which nothing
// is decided from absence.
#include <utility>

#include "absl/strings/str_cat.h"
#include "src/common/defects.h"
#include "src/common/status_macros.h"
#include "src/common/version.h"
#include "src/directory/directory_core_impl.h"

namespace phalanx::directory {
// The node goes on living in a new session: what it had is not offered any more, and goes if it is
// not told again.
void DirectoryCore::Impl::BeginStale(Node& node) {
  for (const ObjectId& id : Sorted(node.objects)) {
    Object* object = FindObject(id);
    if (object == nullptr) continue;
    const bool hoped_for = object->last_hopes.contains(node.key);
    EndWant(*object, node.key);
    ForgetDrainTarget(*object, node.key);
    if (const auto copy = object->copies.find(node.key); copy != object->copies.end()) {
      copy->second.stale = true;
      if (hoped_for) HopeFor(*object);
      BroadcastTree::Member* member =
          object->tree != nullptr ? object->tree->Find(node.key) : nullptr;
      if (member != nullptr) object->tree->SetConnected(member, false);
    }
    for (Attempt& attempt : object->attempts) {
      if (attempt.node == node.key) attempt.stale = true;
    }
    UninvolveIfDone(node.key, *object);
    Settle(*object);
  }
  node.registering = true;
  node.draining = false;
  node.drain_told.reset();
  if (draining_.erase(node.key) == 0) return;
  for (const auto& fetching : {node.sole_fetching, node.sole_queued, node.sole_stuck}) {
    for (const ObjectId& id : fetching) {
      if (Object* object = FindObject(id)) ReviewSole(*object);
    }
  }
  node.sole_fetching.clear();
  node.sole_queued.clear();
  node.sole_stuck.clear();
}

void DirectoryCore::Impl::SweepStale(Node& node) {
  for (const ObjectId& id : Sorted(node.objects)) {
    Object* object = FindObject(id);
    if (object == nullptr) continue;
    const auto copy = object->copies.find(node.key);
    const bool stale = copy != object->copies.end() && copy->second.stale;
    const size_t attempts = object->attempts.size();
    std::erase_if(object->attempts,
                  [&node](const Attempt& a) { return a.node == node.key && a.stale; });
    if (!stale && object->attempts.size() == attempts) continue;
    if (stale) StrikeCopy(*object, node.key);
    UninvolveIfDone(node.key, *object);
    Settle(*object);
  }
}

absl::Status DirectoryCore::Impl::OnRegisterBegin(Node& node, const v1::RegisterBegin& m) {
  node.registering = true;
  if (m.had_session()) restarted_ = true;
  if (m.sticky_stamp() <= Broadcasts::kMaxStamp) broadcasts_.HeardOf(m.sticky_stamp());
  return absl::OkStatus();
}

absl::Status DirectoryCore::Impl::OnRegisterCopy(Node& node, const v1::RegisterCopy& m) {
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
  PHALANX_ASSIGN_OR_RETURN(r.mark, ParseMark(m.sticky()));
  if (r.adopted) restarted_ = true;
  if (Tombstone* tombstone = Refusal(id, r.generation)) {
    AwaitConfirm(*tombstone, id, r.generation, node);
    SendVerdict(node.key, Object(id), r.generation, v1::Verdict::DELETED);
    return absl::OkStatus();
  }
  Object& object = GetObject(id);
  const bool current = object.adopted && object.generation == r.generation;
  if (current && !(object.info == r.info)) {
    return absl::InvalidArgumentError("info: another node registered another one");
  }
  if (!object.adopted && r.adopted && !Learning() && DefectActive(Defect::kFencedDropsSoleCopy)) {
    SendVerdict(node.key, object, r.generation, v1::Verdict::SUPERSEDED);
  } else if (current || (!object.adopted && r.adopted)) {
    RegisterAdopted(object, node, r, m.watermarks());
  } else {
    RegisterRival(object, node, r, m.watermarks());
  }
  const bool adopted = object.adopted;
  Settle(object);
  if (adopted) AnswerDeferred(id);
  return absl::OkStatus();
}

void DirectoryCore::Impl::RegisterAdopted(Object& object, Node& node, const Registration& r,
                                          absl::Span<const uint64_t> watermarks) {
  const bool found_it = !object.adopted;
  if (found_it) {
    object.adopted = true;
    object.sealed = WasLost(object.id, r.generation);
    object.loss_told = false;
    object.generation = r.generation;
    object.info = r.info;
    RestoreMark(object);
    ForgetLoss(object.id);
    object.first_plan = ++next_plan_;
    if (Tombstone* tombstone = FindTombstone(object.id)) tombstone->revived = true;
  }
  if (r.adopted) object.tentative = false;
  if (!r.info.owned) KeepObject(object);
  AbsorbAttempts(object);
  auto [at, added] = object.copies.try_emplace(node.key);
  Copy& copy = at->second;
  if (added) ++node.copies;
  Involve(node, object.id);
  // What was complete in the last session and is partial now lost bytes: its receivers start over
  // with somebody else.
  if (copy.complete && !r.complete) {
    StrikeCopy(object, node.key);
    RegisterAdopted(object, node, r, watermarks);
    return;
  }
  copy.stale = false;
  copy.unconfirmed = false;
  copy.registered = true;
  copy.primary = r.primary;
  copy.registered_stamp = r.mark.stamp;
  SetWriter(object, copy, r.writing);
  copy.watermarks.assign(watermarks.begin(), watermarks.end());
  if (r.info.owned && !object.info.owned) SendKept(node.key, object);
  copy.registered_sender = r.complete ? NodeKey() : r.sender;
  if (copy.registered_sender.valid()) {
    if (copy.pull == nullptr) copy.pull = std::make_unique<PullRecord>();
    copy.pull->sender = r.sender;
    copy.pull->plan = 0;
    copy.pull->started = now_;
  }
  if (copy.pull != nullptr) copy.pull->reported = !copy.registered_sender.valid();
  EndHope(object, node.key);
  // Its pull may have ended well since, and the report be on the way.
  if (!r.complete && object.complete_copies == 0) HopeFor(object);
  if (!r.adopted && object.tentative) {
    object.verdict_held = true;
  } else if (!r.adopted) {
    SendVerdict(node.key, object, r.generation, v1::Verdict::ADOPTED);
  }
  if (object.tree != nullptr) {
    object.tree->SetConnected(Join(object, node.key, copy), node.connected);
  }
  if (r.complete) CompleteCopy(object, node.key);
  if (found_it) TellStandBys(object);
  if (found_it) BroadcastAnew(object);
  TakeMark(object, node.key, r.mark);
  if (!r.complete) AdmitOutsidePulls(object, node.key);
}

void DirectoryCore::Impl::AbsorbAttempts(Object& object) {
  std::vector<Attempt> same;
  for (const Attempt& attempt : object.attempts) {
    if (attempt.generation == object.generation) same.push_back(attempt);
  }
  for (const Attempt& attempt : same) EraseAttempt(object, attempt.generation, attempt.node);
  for (const Attempt& attempt : same) {
    Node* node = FindNode(attempt.node);
    if (node == nullptr) continue;
    if (attempt.stale) {
      UninvolveIfDone(attempt.node, object);
      continue;
    }
    Registration r;
    r.generation = attempt.generation;
    r.info = attempt.info;
    r.primary = attempt.generation.creator == attempt.node;
    r.complete = attempt.complete;
    r.writing = !attempt.complete;
    r.mark = attempt.mark;
    RegisterAdopted(object, *node, r, {});
  }
}

bool DirectoryCore::Impl::RivalWins(const Object& object, const Registration& r) const {
  if (DefectActive(Defect::kProvisionalBeatsAdopted) && !r.adopted) return true;
  if (!object.adopted || !r.adopted) return false;
  if (object.tentative) return true;
  if (object.complete_copies > 0) return false;
  if (r.complete) return true;
  return r.generation < object.generation;
}

// Another generation than the adopted one, or one that was never adopted.
void DirectoryCore::Impl::RegisterRival(Object& object, Node& node, const Registration& r,
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
    Node* loser_node = FindNode(loser.creator);
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
  object.attempts.back().mark = r.mark;
}

absl::Status DirectoryCore::Impl::OnRegisterWant(Node& node, const v1::RegisterWant& m) {
  PHALANX_ASSIGN_OR_RETURN(const ObjectId id, ParseObjectId(m.object_id()));
  if (DefectActive(Defect::kWaiterDroppedAtRestart)) return absl::OkStatus();
  Object& object = GetObject(id);
  Want asked;
  asked.number = m.number();
  asked.keep = m.keep();
  asked.held = node.registering;
  AddWant(object, node, asked);
  // One that was open before is not held: no end of a registration answers it.
  const auto want = object.wants.find(node.key);
  const bool held = want != object.wants.end() && want->second.held;
  held ? ReleaseIfEmpty(object) : Settle(object);
  return absl::OkStatus();
}

absl::Status DirectoryCore::Impl::OnRegisterTombstone(Node& node, const v1::RegisterTombstone& m) {
  PHALANX_ASSIGN_OR_RETURN(const ObjectId id, ParseObjectId(m.object_id()));
  PHALANX_ASSIGN_OR_RETURN(const Generation generation, ParseGeneration(m.generation()));
  (void)node;
  if (DefectActive(Defect::kTombstoneForgottenAtRestart)) return absl::OkStatus();
  restarted_ = true;
  Entomb(id, generation);
  return absl::OkStatus();
}

void DirectoryCore::Impl::Entomb(const ObjectId& id, const Generation& generation) {
  if (IsReductionNumber(generation)) EndIfBuried(id, generation);
  Object* object = FindObject(id);
  if (object != nullptr && object->adopted && object->generation == generation) {
    DeleteObject(*object, /*spare_others=*/true);
  } else {
    const Tombstone* known = Refusal(id, generation);
    if (WasLost(id, generation)) ForgetLoss(id);
    const bool revived = (object != nullptr && object->adopted) || lost_.contains(id) ||
                         (known != nullptr && known->revived) || FindReduction(id) != nullptr;
    // Behind what was deleted in this life of the shard: a node's old tombstones must not push out
    // the last one.
    Tombstone& tombstone = BuryBehind(id, generation);
    tombstone.revived = revived;
    if (object != nullptr) RefuseAttempts(*object, generation, tombstone);
    if (object != nullptr) Settle(*object);
  }
}

// The generation that had been adopted here is deleted: one of those that were adopted elsewhere,
// after that Delete, is what there is.
void DirectoryCore::Impl::AdoptSpared(Object& object) {
  const auto best = std::min_element(
      object.attempts.begin(), object.attempts.end(), [](const Attempt& a, const Attempt& b) {
        if (a.adopted != b.adopted) return a.adopted;
        return a.complete != b.complete ? a.complete : a.generation < b.generation;
      });
  if (best == object.attempts.end() || !best->adopted) return;
  const Attempt chosen = *best;
  EraseAttempt(object, chosen.generation, chosen.node);
  Registration r;
  r.generation = chosen.generation;
  r.info = chosen.info;
  r.primary = chosen.generation.creator == chosen.node;
  r.adopted = true;
  r.complete = chosen.complete;
  r.writing = !chosen.complete;
  r.mark = chosen.mark;
  RegisterAdopted(object, *FindNode(chosen.node), r, {});
}

void DirectoryCore::Impl::RefuseAttempts(Object& object, const Generation& generation,
                                         Tombstone& tombstone) {
  std::vector<NodeKey> holders;
  for (const Attempt& attempt : object.attempts) {
    if (attempt.generation == generation) holders.push_back(attempt.node);
  }
  for (const NodeKey& holder : holders) {
    SendVerdict(holder, object, generation, v1::Verdict::DELETED);
    AwaitConfirm(tombstone, object.id, generation, *FindNode(holder));
    EraseAttempt(object, generation, holder);
    UninvolveIfDone(holder, object);
  }
}

void DirectoryCore::Impl::OnRegisterEnd(Node& node) {
  node.registering = false;
  holds_.Registered(node.key);
  ForgetConfirms(node.key, Sorted(node.unconfirmed), node.session);
  SweepStale(node);
  for (const ObjectId& id : Sorted(node.objects)) {
    Object* object = FindObject(id);
    if (object == nullptr) continue;
    SupersedeAll(*object);
    const auto want = object->wants.find(node.key);
    if (want == object->wants.end() || !want->second.held) continue;
    AdmitRegisteredWant(*object, node, want->second);
    Settle(*object);
  }
  ReductionSessionRegistered(node.key);
  broadcasts_.NodeJoined(node.key, node.info.name());
  RetryStuckDrains();
  EndLearningIfDue();
}

void DirectoryCore::Impl::AdmitRegisteredWant(Object& object, Node& node, Want& want) {
  want.held = false;
  const auto copy = object.copies.find(node.key);
  if (copy == object.copies.end() || !copy->second.registered_sender.valid()) return;
  const NodeKey sender = std::exchange(copy->second.registered_sender, NodeKey());
  if (LinkRegisteredPull(object, node, want, sender) || !Learning()) return;
  // Its sender may still register: the pull goes on meanwhile.
  want.pulling = true;
  want.outside_sender = sender;
  ++node.pulls;
  object.waiting.erase({want.order, node.key});
  --waiting_wants_;
  Tree(object).SetFedFromOutside(Join(object, node.key, copy->second), true);
}

bool DirectoryCore::Impl::LinkRegisteredPull(Object& object, Node& node, Want& want,
                                             const NodeKey& sender) {
  const auto copy = object.copies.find(sender);
  if (copy == object.copies.end() || copy->second.stale) return false;
  BroadcastTree& tree = Tree(object);
  BroadcastTree::Member* from = Join(object, sender, copy->second);
  BroadcastTree::Member* to = Join(object, node.key, object.copies.at(node.key));
  tree.MarkDownstream(to);
  if (tree.Downstream(*from)) return false;
  tree.SetFedFromOutside(to, false);
  tree.Attach(to, from, /*plan=*/0, ~uint64_t{0}, /*occupies=*/true, now_);
  to->progress.at = now_;
  planner_.PullBegan(sender, node.key);
  want.outside_sender = NodeKey();
  if (want.pulling) return true;
  want.pulling = true;
  ++node.pulls;
  object.waiting.erase({want.order, node.key});
  --waiting_wants_;
  return true;
}

void DirectoryCore::Impl::AdmitOutsidePulls(Object& object, const NodeKey& sender) {
  for (auto& [key, want] : object.wants) {
    if (!want.outside_sender.valid() || want.outside_sender != sender) continue;
    Node* node = FindNode(key);
    if (!LinkRegisteredPull(object, *node, want, sender)) Requeue(object, key);
  }
}

void DirectoryCore::Impl::EndLearningIfDue() {
  // A shard with very much to learn, or a node that never says it is done: then a Delete or a Query
  // that waits is worth more than what may still come.
  constexpr int kMaxLearningLeases = 30;
  if (!learning_ || now_ < learn_until_) return;
  const bool unheard = std::any_of(nodes_.begin(), nodes_.end(),
                                   [](const auto& node) { return node.second->registering; });
  if (unheard && now_ < learn_until_ + kMaxLearningLeases * options_.lease) return;
  EndLearning();
}

void DirectoryCore::Impl::EndLearning() {
  RefuseRegisteredFolds();
  learning_ = false;
  // Who watches sources from elsewhere has not been told of those that are not there.
  for (const auto& [source, watchers] : watchers_) changed_sources_.insert(source);
  std::vector<ObjectId> ids;
  ids.reserve(objects_.size());
  for (const auto& [id, object] : objects_) ids.push_back(id);
  for (const ObjectId& id : ids) {
    Object* object = FindObject(id);
    if (object == nullptr) continue;
    object->tentative = false;
    if (object->verdict_held) TellAdopted(*object);
    std::vector<NodeKey> outside;
    for (const auto& [key, want] : object->wants) {
      if (want.outside_sender.valid()) outside.push_back(key);
    }
    for (const NodeKey& key : outside) Requeue(*object, key);
    Settle(*object);
  }
  while (!deferred_.empty()) AnswerDeferred(ObjectId(deferred_.begin()->first));
  AnswerDeferredBroadcasts();
  BeginPlans();
}

}  // namespace phalanx::directory
