// Which generation of an object counts: creation, sealing, withdrawal, and what follows when copies
// go.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "src/common/check.h"
#include "src/common/defects.h"
#include "src/common/status_macros.h"
#include "src/directory/directory_core_impl.h"

namespace phalanx::directory {

absl::Status DirectoryCore::Impl::OnCreate(Node& node, const v1::AnnounceCreate& m) {
  PHALANX_ASSIGN_OR_RETURN(const ObjectId id, ParseObjectId(m.object_id()));
  PHALANX_ASSIGN_OR_RETURN(const Generation generation, ParseGeneration(m.generation()));
  PHALANX_ASSIGN_OR_RETURN(ObjectInfo info, ParseObjectInfo(m.info()));
  PHALANX_RETURN_IF_ERROR(
      ValidateInline(info.size_bytes, m.complete(), m.has_inline(), m.inline_bytes()));
  ++counters_.creates;
  if (m.has_version() && IsRingMember(id, FromProto(m.version()), node.key)) {
    return OnRingCreate(node, id, generation, std::move(info));
  }
  const bool root = m.has_version();
  if (root && !IsRoot(id, FromProto(m.version()), node.key)) {
    // What the plan wants has changed since; or it has ended. What was made of it is dropped like
    // something that another one of its size was put before.
    SendFoldDrop(node.key, id, FromProto(m.version()));
    SendSuperseded(node.key, id, generation, info);
    return absl::OkStatus();
  }
  if (generation.creator != node.key) {
    return absl::InvalidArgumentError("generation: another node has created it");
  }
  if (Tombstone* tombstone = Refusal(id, generation)) {
    AwaitConfirm(*tombstone, id, generation, node);
    SendVerdict(node.key, Object(id), generation, v1::Verdict::DELETED);
    return absl::OkStatus();
  }
  Object& object = GetObject(id);
  if (root) {
    Reduction& reduction = *FindReduction(id);
    const bool other = object.adopted && object.generation != generation;
    // Of any other somebody may have all bytes: that is waited for, while this one stands by.
    if (other && object.generation == reduction.open_root) ReplaceRoot(object);
    reduction.root_generation = generation;
    reduction.open_root = reduction.plan.committed() ? Generation() : generation;
  }
  const bool current = object.adopted && object.generation == generation;
  if (current && !(object.info == info)) {
    return absl::InvalidArgumentError("info: it differs from what was announced");
  }
  if (current) {
    TellAdopted(object);
    if (m.complete() && object.copies.contains(node.key)) CompleteCopy(object, node.key);
  } else if (!object.adopted && MayAdoptFromAbsence() && (root || FindReduction(id) == nullptr)) {
    // It may have been registered before it was known what it is.
    EraseAttempt(object, generation, node.key);
    Adopt(object, node, generation, std::move(info), m.complete(), /*tell=*/true);
  } else {
    StandBy(object, node, generation, std::move(info), m.complete());
  }
  const bool adopted = object.adopted && object.generation == generation;
  if (adopted && m.has_inline()) CacheInline(object, m.inline_bytes());
  // Somebody may have asked for it meanwhile who wants it to stay.
  if (adopted && root && !FindReduction(id)->owned) KeepObject(object);
  Settle(object);
  return absl::OkStatus();
}

void DirectoryCore::Impl::ReplaceRoot(Object& object) {
  const Generation old = object.generation;
  const ObjectInfo info = object.info;
  const bool listed = object.copies.contains(old.creator);
  // Void is what is pulled. What is written, or sealed, its creator drops when it is superseded.
  VoidGeneration(object, "it is computed anew", old.creator);
  if (listed) SendSuperseded(old.creator, object.id, old, info);
}

void DirectoryCore::Impl::SendSuperseded(const NodeKey& to, const ObjectId& id,
                                         const Generation& generation, const ObjectInfo& info) {
  v1::Verdict& verdict = *Send(to).mutable_verdict();
  verdict.set_object_id(id.binary().data(), ObjectId::kSize);
  ToProto(generation, verdict.mutable_generation());
  verdict.set_kind(v1::Verdict::SUPERSEDED);
  ToProto(info, verdict.mutable_info());
}

absl::Status DirectoryCore::Impl::OnSeal(Node& node, const v1::AnnounceSeal& m) {
  PHALANX_ASSIGN_OR_RETURN(const ObjectId id, ParseObjectId(m.object_id()));
  PHALANX_ASSIGN_OR_RETURN(const Generation generation, ParseGeneration(m.generation()));
  Object* object = FindObject(id);
  if (object == nullptr) {
    ++counters_.late_messages;
    return absl::OkStatus();
  }
  if (Attempt* attempt = FindAttempt(*object, generation, node.key)) {
    PHALANX_RETURN_IF_ERROR(
        ValidateInline(attempt->info.size_bytes, true, m.has_inline(), m.inline_bytes()));
    if (attempt->complete) return absl::OkStatus();
    attempt->complete = true;
    if (attempt->superseded && attempt->info.size_bytes != object->info.size_bytes) {
      ++object->conflicts;
      ++counters_.conflicts;
    }
    if (!attempt->superseded && DefectActive(Defect::kStandbyAdoptedEarly)) {
      VoidGeneration(*object, "another generation was complete first", NodeKey());
    }
    Settle(*object);
    return absl::OkStatus();
  }
  const bool current =
      object->adopted && object->generation == generation && object->copies.contains(node.key);
  if (!current) {
    ++counters_.late_messages;
    return absl::OkStatus();
  }
  PHALANX_RETURN_IF_ERROR(
      ValidateInline(object->info.size_bytes, true, m.has_inline(), m.inline_bytes()));
  CompleteCopy(*object, node.key);
  if (m.has_inline()) CacheInline(*object, m.inline_bytes());
  Settle(*object);
  return absl::OkStatus();
}

absl::Status DirectoryCore::Impl::OnWithdraw(Node& node, const v1::Withdraw& m) {
  PHALANX_ASSIGN_OR_RETURN(const ObjectId id, ParseObjectId(m.object_id()));
  PHALANX_ASSIGN_OR_RETURN(const Generation generation, ParseGeneration(m.generation()));
  Confirm(id, generation, node.key);
  Object* object = FindObject(id);
  if (object == nullptr) return absl::OkStatus();
  if (object->adopted && object->generation == generation && object->copies.contains(node.key)) {
    StrikeCopy(*object, node.key);
    if (const auto want = object->wants.find(node.key); want != object->wants.end()) {
      // It could not keep what it got: not again at once.
      const int doublings = std::min(want->second.withdrawals++, 8);
      want->second.not_before = now_ + absl::Milliseconds(10) * (1 << doublings);
    }
  }
  EraseAttempt(*object, generation, node.key);
  UninvolveIfDone(node.key, *object);
  Settle(*object);
  return absl::OkStatus();
}

void DirectoryCore::Impl::Adopt(Object& object, Node& node, const Generation& generation,
                                ObjectInfo info, bool complete, bool tell) {
  PHALANX_CHECK(!object.adopted && object.copies.empty(), "one generation at a time");
  object.adopted = true;
  object.sealed = false;
  object.loss_told = false;
  object.tentative = Learning();
  object.first_plan = ++next_plan_;
  object.generation = generation;
  object.info = std::move(info);
  ++counters_.adopted;
  ForgetFailure(object.id);
  ForgetLoss(object.id);
  if (Tombstone* tombstone = FindTombstone(object.id)) tombstone->revived = true;
  Copy& copy = object.copies[node.key];
  copy.primary = true;
  SetWriter(object, copy, !complete);
  ++node.copies;
  Involve(node, object.id);
  if (tell) TellAdopted(object);
  BroadcastAnew(object);
  if (complete) CompleteCopy(object, node.key);
}

void DirectoryCore::Impl::TellAdopted(Object& object) {
  object.verdict_held = object.tentative;
  if (object.tentative || !object.copies.contains(object.generation.creator)) return;
  SendVerdict(object.generation.creator, object, object.generation, v1::Verdict::ADOPTED);
}

Attempt* DirectoryCore::Impl::FindAttempt(Object& object, const Generation& generation,
                                          const NodeKey& node) {
  for (Attempt& attempt : object.attempts) {
    if (attempt.generation == generation && attempt.node == node) return &attempt;
  }
  return nullptr;
}

void DirectoryCore::Impl::EraseAttempt(Object& object, const Generation& generation,
                                       const NodeKey& node) {
  std::erase_if(object.attempts, [&generation, &node](const Attempt& a) {
    return a.generation == generation && a.node == node;
  });
}

void DirectoryCore::Impl::StandBy(Object& object, Node& node, const Generation& generation,
                                  ObjectInfo info, bool complete, bool adopted) {
  EraseAttempt(object, generation, node.key);
  object.attempts.push_back(Attempt{generation, node.key, std::move(info), complete,
                                    /*superseded=*/false, /*stale=*/false, adopted});
  Involve(node, object.id);
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

void DirectoryCore::Impl::Supersede(Object& object, Attempt& attempt) {
  // One that is stale is judged when it is registered again.
  if (attempt.superseded || attempt.stale) return;
  // The tombstone of the other one may be among what is still to be registered. This one may have
  // been adopted since, and its node not have heard of it.
  const Node* node = FindNode(attempt.node);
  if ((Learning() && restarted_) || (node != nullptr && node->registering)) return;
  attempt.superseded = true;
  ++counters_.superseded;
  if (attempt.complete && attempt.info.size_bytes != object.info.size_bytes) {
    ++object.conflicts;
    ++counters_.conflicts;
  }
  SendVerdict(attempt.node, object, attempt.generation, v1::Verdict::SUPERSEDED);
}

bool DirectoryCore::Impl::CompleteInSight(const Object& object) const {
  // One that was adopted before may still be registered, and then wins over a tentative one: also
  // over its complete copy, so that what stands by may be that very generation.
  if (object.complete_copies == 0 || object.tentative) return false;
  return std::any_of(object.copies.begin(), object.copies.end(), [this](const auto& entry) {
    const Node* node = FindNode(entry.first);
    return entry.second.complete && !entry.second.stale && node != nullptr && node->connected;
  });
}

void DirectoryCore::Impl::SupersedeAll(Object& object) {
  if (!object.adopted || object.attempts.empty() || !CompleteInSight(object)) return;
  for (Attempt& attempt : object.attempts) Supersede(object, attempt);
}

void DirectoryCore::Impl::TellStandBys(Object& object) {
  for (const Attempt& attempt : object.attempts) {
    if (!attempt.superseded && !attempt.stale) {
      SendVerdict(attempt.node, object, attempt.generation, v1::Verdict::STANDBY);
    }
  }
}

void DirectoryCore::Impl::CompleteCopy(Object& object, const NodeKey& key) {
  Copy& copy = object.copies.at(key);
  if (!copy.complete) {
    copy.complete = true;
    ++object.complete_copies;
  }
  SetWriter(object, copy, false);
  copy.watermarks.clear();
  NoteChange(object.id);
  object.sealed = true;
  ForgetFailure(object.id);
  ForgetLoss(object.id);
  object.loss_told = false;
  object.last_hopes.clear();
  object.void_at = Instant::Infinite();
  EndFeeds(object, key, /*completed=*/true);
  if (object.tree != nullptr) object.tree->Complete(Join(object, key, copy));
  if (const auto want = object.wants.find(key); want != object.wants.end()) {
    copy.primary = copy.primary || want->second.keep;
    EndWant(object, key);
  }
  if (!object.copies.at(key).unconfirmed) broadcasts_.Arrived(object.id, key);
  SupersedeAll(object);
  ReviewSole(object);
}

void DirectoryCore::Impl::StrikeCopy(Object& object, const NodeKey& key) {
  const auto found = object.copies.find(key);
  if (found == object.copies.end()) return;
  NoteChange(object.id);
  const bool source = found->second.writer || found->second.complete;
  EndHope(object, key);
  if (found->second.complete) --object.complete_copies;
  SetWriter(object, found->second, false);
  LeaveTree(object, key);
  object.copies.erase(found);
  if (source && object.complete_copies == 0) object.last_holder = NameOf(key);
  if (source && object.complete_copies == 0) HopeFor(object);
  if (Node* node = FindNode(key)) --node->copies;
  UninvolveIfDone(key, object);
  ReviewSole(object);
}

void DirectoryCore::Impl::HopeFor(Object& object) {
  for (const auto& [key, copy] : object.copies) {
    // Downstream, too: it may have had every byte from an earlier sender.
    const bool unknown = copy.stale || (copy.pull != nullptr && !copy.pull->reported);
    if (unknown && !copy.complete) object.last_hopes.insert(key);
  }
  if (object.last_hopes.empty()) return;
  object.void_at = now_ + options_.lease;
  SetTimer(object, object.void_at);
}

void DirectoryCore::Impl::EndHope(Object& object, const NodeKey& key) {
  if (object.last_hopes.erase(key) != 0 && object.last_hopes.empty()) {
    object.void_at = Instant::Infinite();
  }
}

void DirectoryCore::Impl::SetWriter(Object& object, Copy& copy, bool writes) {
  object.writers += (writes ? 1 : 0) - (copy.writer ? 1 : 0);
  copy.writer = writes;
}

void DirectoryCore::Impl::Settle(Object& object) {
  NoteChange(object.id);
  // A writer may still seal, also what receivers had whole before it did and lost again.
  const bool may_come = object.complete_copies > 0 || HasWriter(object) ||
                        !object.last_hopes.empty() || AwaitsResult(object);
  if (object.adopted && !may_come && !Learning()) {
    object.sealed ? DecideLoss(object) : DecideVoid(object);
  } else if (object.complete_copies == 0 && !Learning()) {
    DropInline(object);
  }
  if (!object.adopted && !object.attempts.empty()) AdoptBestAttempt(object);
  if (!object.adopted) RefuseWantsOfDeleted(object);
  if (!object.adopted && !failed_.empty()) RefuseWantsOfFailed(object);
  SupersedeAll(object);
  Plan(object);
  DropTreeIfIdle(object);
  if (Unheld(object)) unheld_.insert(object.id);
  ReleaseIfEmpty(object);
}

void DirectoryCore::Impl::RefuseWantsOfDeleted(Object& object) {
  if (object.wants.empty() || !object.attempts.empty() || Learning()) return;
  const Tombstone* tombstone = FindDeleted(object.id);
  if (tombstone == nullptr) return;
  while (!object.wants.empty()) {
    const NodeKey key = object.wants.begin()->first;
    EndWant(object, key);
    SendGone(key, object, tombstone->generations.front(), v1::Gone::DELETED, "deleted");
  }
}

void DirectoryCore::Impl::DecideLoss(Object& object) {
  for (const Attempt& attempt : object.attempts) {
    if (attempt.superseded) continue;
    VoidGeneration(object, "no copy of it is left, and it was put again", NodeKey());
    return;
  }
  DropInline(object);
  NoteLoss(object);
  if (object.loss_told) return;
  object.loss_told = true;
  for (const auto& [key, want] : object.wants) TellLoss(key, object.id);
}

void DirectoryCore::Impl::DecideVoid(Object& object) {
  ++counters_.voided;
  VoidGeneration(object, "its creator ended before it was complete", NodeKey());
}

void DirectoryCore::Impl::VoidGeneration(Object& object, absl::string_view reason,
                                         const NodeKey& except) {
  absl::btree_set<NodeKey> concerned;
  for (const auto& [key, copy] : object.copies) concerned.insert(key);
  for (const auto& [key, want] : object.wants) concerned.insert(key);
  for (const NodeKey& key : concerned) {
    // A node that registers anew is told when it comes to this copy.
    const auto copy = object.copies.find(key);
    const bool stale = copy != object.copies.end() && copy->second.stale;
    if (key != except && !stale) {
      SendGone(key, object, object.generation, v1::Gone::VOID, reason);
    }
  }
  for (const NodeKey& key : concerned) {
    Requeue(object, key);
    const auto copy = object.copies.find(key);
    if (copy == object.copies.end()) continue;
    object.copies.erase(copy);
    if (Node* node = FindNode(key)) --node->copies;
    UninvolveIfDone(key, object);
  }
  ForgetGeneration(object);
}

void DirectoryCore::Impl::ForgetGeneration(Object& object) {
  NoteChange(object.id);
  object.tree.reset();
  object.complete_copies = 0;
  object.writers = 0;
  object.adopted = false;
  object.sealed = false;
  object.tentative = false;
  object.verdict_held = false;
  object.last_hopes.clear();
  object.void_at = Instant::Infinite();
  DropInline(object);
  ReviewSole(object);
}

bool DirectoryCore::Impl::AdoptBestAttempt(Object& object) {
  if (!MayAdoptFromAbsence()) return false;
  // What a reduction computes comes before what was put under its target meanwhile. A result that
  // is complete was committed by an earlier life of this shard.
  const Reduction* reduction = FindReduction(object.id);
  const Attempt* best = nullptr;
  for (const Attempt& attempt : object.attempts) {
    const bool result = (attempt.complete && !attempt.info.reduced_from.empty()) ||
                        (reduction != nullptr && attempt.generation == reduction->root_generation);
    if (reduction != nullptr && !result) continue;
    if (attempt.superseded || attempt.stale || FindNode(attempt.node) == nullptr) continue;
    const bool better = best == nullptr || (attempt.complete != best->complete
                                                ? attempt.complete
                                                : attempt.generation < best->generation);
    if (better) best = &attempt;
  }
  if (best == nullptr) return false;
  const Attempt chosen = *best;
  EraseAttempt(object, chosen.generation, chosen.node);
  Adopt(object, *FindNode(chosen.node), chosen.generation, chosen.info, chosen.complete,
        /*tell=*/true);
  TakeMark(object, chosen.node, chosen.mark);
  AbsorbAttempts(object);
  if (!chosen.complete) TellStandBys(object);
  return true;
}

void DirectoryCore::Impl::SendVerdict(const NodeKey& to, const Object& object,
                                      const Generation& generation, v1::Verdict::Kind kind) {
  v1::Verdict& verdict = *Send(to).mutable_verdict();
  verdict.set_object_id(object.id.binary().data(), ObjectId::kSize);
  ToProto(generation, verdict.mutable_generation());
  verdict.set_kind(kind);
  if (kind != v1::Verdict::STANDBY && kind != v1::Verdict::SUPERSEDED) return;
  ToProto(object.generation, verdict.mutable_adopted());
  ToProto(object.info, verdict.mutable_info());
}

void DirectoryCore::Impl::CacheInline(Object& object, const std::string& bytes) {
  if (bytes.size() > options_.inline_cache_bytes || object.inline_cached) return;
  object.inline_cached = true;
  object.inline_bytes = bytes;
  inline_by_age_.push_front(&object);
  object.inline_age = inline_by_age_.begin();
  inline_bytes_ += bytes.size();
  while (inline_bytes_ > options_.inline_cache_bytes) DropInline(*inline_by_age_.back());
}

void DirectoryCore::Impl::DropInline(Object& object) {
  if (!object.inline_cached) return;
  NoteChange(object.id);
  object.inline_cached = false;
  inline_bytes_ -= object.inline_bytes.size();
  std::string().swap(object.inline_bytes);
  inline_by_age_.erase(object.inline_age);
}

}  // namespace phalanx::directory
