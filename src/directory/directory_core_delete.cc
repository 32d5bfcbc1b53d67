// Deletes and their tombstones, queries, and permission to evict.
#include <algorithm>
#include <functional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "src/common/defects.h"
#include "src/common/status_macros.h"
#include "src/directory/directory_core_impl.h"

namespace phalanx::directory {
namespace {

// Of one id; an id that is put and deleted more often within the age of a tombstone forgets its
// oldest.
constexpr size_t kMaxTombstoneGenerations = 64;
// Of many that come of age together, so many go in one turn.
constexpr int kMaxForgottenAtOnce = 4096;

bool Refuses(const Tombstone& tombstone, const Generation& generation) {
  const auto& generations = tombstone.generations;
  return std::find(generations.begin(), generations.end(), generation) != generations.end();
}

}  // namespace

Tombstone* DirectoryCore::Impl::FindTombstone(const ObjectId& id) {
  const auto found = tombstones_.find(id);
  return found == tombstones_.end() ? nullptr : found->second.get();
}

const Tombstone* DirectoryCore::Impl::FindDeleted(const ObjectId& id) const {
  const auto found = tombstones_.find(id);
  return found == tombstones_.end() || found->second->revived ? nullptr : found->second.get();
}

Tombstone& DirectoryCore::Impl::GetTombstone(const ObjectId& id) {
  auto [at, added] = tombstones_.try_emplace(id);
  if (added) {
    at->second = std::make_unique<Tombstone>();
    tombstones_listed_.insert(id);
  }
  return *at->second;
}

void DirectoryCore::Impl::EraseTombstone(const ObjectId& id) {
  tombstones_.erase(id);
  tombstones_listed_.erase(id);
}

Tombstone* DirectoryCore::Impl::Refusal(const ObjectId& id, const Generation& generation) {
  Tombstone* tombstone = FindTombstone(id);
  if (tombstone == nullptr) return nullptr;
  return Refuses(*tombstone, generation) ? tombstone : nullptr;
}

Tombstone& DirectoryCore::Impl::Bury(const ObjectId& id, const Generation& generation) {
  Tombstone& tombstone = GetTombstone(id);
  tombstone.revived = false;
  ForgetLoss(id);
  auto& generations = tombstone.generations;
  generations.erase(std::remove(generations.begin(), generations.end(), generation),
                    generations.end());
  generations.insert(generations.begin(), generation);
  BeginAge(tombstone, id);
  if (generations.size() > kMaxTombstoneGenerations) {
    ForgetConfirms(id, generations.back(), tombstone);
    generations.pop_back();
  }
  return tombstone;
}

Tombstone& DirectoryCore::Impl::BuryBehind(const ObjectId& id, const Generation& generation) {
  Tombstone& tombstone = GetTombstone(id);
  auto& generations = tombstone.generations;
  const bool room = generations.size() < kMaxTombstoneGenerations;
  if (room && !Refuses(tombstone, generation)) generations.push_back(generation);
  BeginAge(tombstone, id);
  return tombstone;
}

// A root that is on its way, and who asks again or keeps the reduction in mind, must not bring it
// back: also when the shard begins anew, so there is something that nodes can register.
void DirectoryCore::Impl::BuryReduction(const ObjectId& id, const Generation& number) {
  Bury(id, number);
  if (Object* object = FindObject(id)) Settle(*object);
}

// Its node may be gone, and come back with it.
void DirectoryCore::Impl::BuryLost(const ObjectId& id) {
  const auto lost = lost_.find(id);
  if (lost == lost_.end()) return;
  ++counters_.deleted;
  Bury(id, Generation(lost->second.generation)).info = ObjectInfo();
  if (Object* object = FindObject(id)) Settle(*object);
}

void DirectoryCore::Impl::BeginAge(Tombstone& tombstone, const ObjectId& id) {
  if (tombstone.order != 0) tombstones_by_age_.erase(tombstone.order);
  tombstone.order = next_order_++;
  tombstone.since = now_;
  tombstones_by_age_.emplace_hint(tombstones_by_age_.end(), tombstone.order, id);
}

void DirectoryCore::Impl::AwaitConfirm(Tombstone& tombstone, const ObjectId& id,
                                       const Generation& generation, Node& node) {
  if (!Refuses(tombstone, generation)) return;
  tombstone.unconfirmed[{node.key, generation}] = node.session;
  node.unconfirmed.insert(id);
}

void DirectoryCore::Impl::Confirm(const ObjectId& id, const Generation& generation,
                                  const NodeKey& key) {
  Tombstone* tombstone = FindTombstone(id);
  if (tombstone == nullptr || tombstone->unconfirmed.erase({key, generation}) == 0) return;
  EndConfirm(id, key, *tombstone);
}

void DirectoryCore::Impl::EndConfirm(const ObjectId& id, const NodeKey& key, Tombstone& tombstone) {
  const auto next = tombstone.unconfirmed.lower_bound({key, Generation()});
  const bool others = next != tombstone.unconfirmed.end() && next->first.first == key;
  Node* node = FindNode(key);
  if (node != nullptr && !others) node->unconfirmed.erase(id);
  // One that has outlived its age waits for the last confirmation only.
  if (tombstone.order == 0 && tombstone.unconfirmed.empty()) EraseTombstone(id);
}

void DirectoryCore::Impl::ForgetConfirms(const ObjectId& id, const Generation& generation,
                                         Tombstone& tombstone) {
  std::vector<NodeKey> who;
  for (const auto& [entry, session] : tombstone.unconfirmed) {
    if (entry.second == generation) who.push_back(entry.first);
  }
  for (const NodeKey& key : who) {
    tombstone.unconfirmed.erase({key, generation});
    EndConfirm(id, key, tombstone);
  }
}

void DirectoryCore::Impl::ForgetConfirms(const NodeKey& key, absl::Span<const ObjectId> ids,
                                         uint64_t session) {
  for (const ObjectId& id : ids) {
    Tombstone* tombstone = FindTombstone(id);
    if (tombstone == nullptr) continue;
    auto at = tombstone->unconfirmed.lower_bound({key, Generation()});
    while (at != tombstone->unconfirmed.end() && at->first.first == key) {
      at = at->second < session ? tombstone->unconfirmed.erase(at) : std::next(at);
    }
    EndConfirm(id, key, *tombstone);
  }
}

void DirectoryCore::Impl::ForgetTombstones() {
  for (int i = 0; i < kMaxForgottenAtOnce && !tombstones_by_age_.empty(); ++i) {
    const ObjectId id = tombstones_by_age_.begin()->second;
    Tombstone& oldest = *tombstones_.at(id);
    const bool too_many = tombstones_.size() > options_.max_tombstones;
    if (!too_many && oldest.since + options_.tombstone_age > now_) return;
    tombstones_by_age_.erase(tombstones_by_age_.begin());
    oldest.order = 0;
    if (!too_many && !oldest.unconfirmed.empty()) continue;
    for (const auto& [who, session] : oldest.unconfirmed) {
      if (Node* node = FindNode(who.first)) node->unconfirmed.erase(id);
    }
    EraseTombstone(id);
  }
}

absl::Status DirectoryCore::Impl::OnDelete(Node& node, const v1::DeleteRequest& m) {
  PHALANX_ASSIGN_OR_RETURN(const ObjectId id, ParseObjectId(m.object_id()));
  if (MustLearnAbout(id)) {
    if (Defer(id, node, m.request_id(), Deferred::Kind::kDelete)) return absl::OkStatus();
    v1::DeleteReply& reply = *Send(node.key).mutable_delete_reply();
    reply.set_request_id(m.request_id());
    reply.set_code(static_cast<int>(absl::StatusCode::kResourceExhausted));
    reply.set_message(TooManyDeferred(id));
    return absl::OkStatus();
  }
  AnswerDelete(id, node.key, m.request_id());
  return absl::OkStatus();
}

void DirectoryCore::Impl::AnswerDelete(const ObjectId& id, const NodeKey& node,
                                       uint64_t request_id) {
  Reduction* reduction = FindReduction(id);
  const bool reducing = reduction != nullptr;
  const Generation number = reducing ? reduction->number : Generation();
  const Generation announced = reducing ? reduction->root_generation : Generation();
  if (reducing) {
    EndReduction(*reduction, absl::NotFoundError(absl::StrCat("reduction of ", id.hex(),
                                                              ": its target was deleted")));
  }
  Object* object = FindObject(id);
  const bool adopted = object != nullptr && object->adopted;
  if (!adopted) BuryLost(id);
  if (reducing && !adopted) BuryReduction(id, number);
  // Its node may be gone, and come back with it.
  if (reducing && !adopted && announced.valid()) BuryBehind(id, announced);
  const bool deleted = FindDeleted(id) != nullptr;
  if (adopted) DeleteObject(*object);
  v1::DeleteReply& reply = *Send(node).mutable_delete_reply();
  reply.set_request_id(request_id);
  if (adopted || deleted) {
    for (const Generation& generation : FindTombstone(id)->generations) {
      ToProto(generation, reply.add_generations());
    }
    return;
  }
  reply.set_code(static_cast<int>(absl::StatusCode::kNotFound));
  reply.set_message(absl::StrCat("object ", id.hex(), ": nothing was put under this id"));
}

void DirectoryCore::Impl::DeleteObject(Object& object, bool spare_others) {
  ++counters_.deleted;
  EndBroadcast(object, absl::NotFoundError("it was deleted"));
  if (Reduction* reduction = FindReduction(object.id)) {
    reduction->awaited.clear();
    TouchReduction(object.id);
  }
  Tombstone& tombstone = Bury(object.id, object.generation);
  tombstone.info = object.info;
  DeleteAttempts(object, tombstone, spare_others);
  if (spare_others) VoidReceivers(object);
  absl::btree_set<NodeKey> told;
  std::vector<NodeKey> stale;
  for (const auto& [key, copy] : object.copies) {
    if (copy.stale) {
      stale.push_back(key);
      continue;
    }
    told.insert(key);
    Node* node = FindNode(key);
    if (node != nullptr) AwaitConfirm(tombstone, object.id, object.generation, *node);
  }
  for (const auto& [key, want] : object.wants) {
    if (!spare_others) told.insert(key);
  }
  for (const NodeKey& key : told) {
    SendGone(key, object, object.generation, v1::Gone::DELETED, "deleted");
  }
  for (const NodeKey& key : told) {
    EndWant(object, key);
    StrikeCopy(object, key);
    ForgetDrainTarget(object, key);
  }
  for (const NodeKey& key : stale) StrikeCopy(object, key);
  if (object.attempts.empty() && object.wants.empty()) {
    // Not to be waited for in case it comes back.
    object.adopted = false;
    return ReleaseIfEmpty(object);
  }
  ForgetGeneration(object);
  AdoptSpared(object);
  Settle(object);
}

void DirectoryCore::Impl::DeleteAttempts(Object& object, Tombstone& tombstone, bool spare_others) {
  const auto spared = [spare_others](const Attempt& attempt) {
    return spare_others && !attempt.stale && !attempt.superseded;
  };
  std::vector<NodeKey> stood_by;
  for (const Attempt& attempt : object.attempts) {
    if (spared(attempt)) continue;
    stood_by.push_back(attempt.node);
    // What is stale is refused when its node registers it again.
    BuryBehind(object.id, attempt.generation);
    if (attempt.stale) continue;
    SendVerdict(attempt.node, object, attempt.generation, v1::Verdict::DELETED);
    AwaitConfirm(tombstone, object.id, attempt.generation, *FindNode(attempt.node));
  }
  std::erase_if(object.attempts, std::not_fn(spared));
  for (const NodeKey& key : stood_by) UninvolveIfDone(key, object);
}

void DirectoryCore::Impl::VoidReceivers(Object& object) {
  std::vector<NodeKey> receivers;
  for (const auto& [key, want] : object.wants) {
    const auto copy = object.copies.find(key);
    if (copy == object.copies.end() || copy->second.stale || copy->second.writer) continue;
    receivers.push_back(key);
  }
  for (const NodeKey& key : receivers) {
    SendGone(key, object, object.generation, v1::Gone::VOID, "it turns out to be deleted");
    StrikeCopy(object, key);
  }
}

absl::Status DirectoryCore::Impl::OnDeleteConfirm(Node& node, const v1::DeleteConfirm& m) {
  PHALANX_ASSIGN_OR_RETURN(const ObjectId id, ParseObjectId(m.object_id()));
  PHALANX_ASSIGN_OR_RETURN(const Generation generation, ParseGeneration(m.generation()));
  Confirm(id, generation, node.key);
  return absl::OkStatus();
}

bool DirectoryCore::Impl::MustLearnAbout(const ObjectId& id) {
  const Object* object = FindObject(id);
  return Learning() && (object == nullptr || !object->adopted || MayComeBack(*object));
}

bool DirectoryCore::Impl::Defer(const ObjectId& id, const Node& node, uint64_t request_id,
                                Deferred::Kind kind, std::vector<std::string> names) {
  if (num_deferred_ >= options_.max_deferred) return false;
  const size_t bytes = BytesOf(names);
  if (bytes > options_.max_deferred_name_bytes - deferred_name_bytes_) return false;
  deferred_name_bytes_ += bytes;
  deferred_[id].push_back(Deferred{node.key, node.session, request_id, kind, std::move(names)});
  ++num_deferred_;
  return true;
}

std::string DirectoryCore::Impl::TooManyDeferred(const ObjectId& id) const {
  return absl::StrCat("object ", id.hex(), ": ", num_deferred_,
                      " requests wait for the end of the shard's first lease already");
}

void DirectoryCore::Impl::AnswerDeferred(const ObjectId& id) {
  const auto found = deferred_.find(id);
  if (found == deferred_.end()) return;
  const std::vector<Deferred> requests = std::move(found->second);
  deferred_.erase(found);
  num_deferred_ -= requests.size();
  for (const Deferred& request : requests) {
    deferred_name_bytes_ -= BytesOf(request.names);
    const Node* node = FindNode(request.node);
    // In a new session the node asks again.
    if (node == nullptr || node->session != request.session) continue;
    switch (request.kind) {
      case Deferred::Kind::kDelete:
        AnswerDelete(id, request.node, request.request_id);
        break;
      case Deferred::Kind::kKeep:
        AnswerKeep(id, request.node, request.request_id);
        break;
      case Deferred::Kind::kQuery:
        AnswerQuery(id, request.node, request.request_id, request.names);
        break;
    }
  }
}

absl::Status DirectoryCore::Impl::OnQuery(Node& node, const v1::QueryRequest& m) {
  PHALANX_ASSIGN_OR_RETURN(const ObjectId id, ParseObjectId(m.object_id()));
  if (m.nodes_size() > 0) PHALANX_RETURN_IF_ERROR(ParseNodeNames(m.nodes()).status());
  std::vector<std::string> names(m.nodes().begin(), m.nodes().end());
  if (MustLearnAbout(id)) {
    const bool deferred = Defer(id, node, m.request_id(), Deferred::Kind::kQuery, std::move(names));
    if (deferred) return absl::OkStatus();
    v1::QueryReply& reply = *Send(node.key).mutable_query_reply();
    reply.set_request_id(m.request_id());
    reply.set_code(static_cast<int>(absl::StatusCode::kResourceExhausted));
    reply.set_message(TooManyDeferred(id));
    return absl::OkStatus();
  }
  AnswerQuery(id, node.key, m.request_id(), names);
  return absl::OkStatus();
}

void DirectoryCore::Impl::AnswerQuery(const ObjectId& id, const NodeKey& node, uint64_t request_id,
                                      absl::Span<const std::string> names) {
  v1::QueryReply& reply = *Send(node).mutable_query_reply();
  reply.set_request_id(request_id);
  reply.set_holders(holds_.Holders(id));
  const Object* object = FindObject(id);
  if (object != nullptr && object->adopted) {
    reply.set_known(true);
    reply.set_complete(object->complete_copies > 0);
    ToProto(object->generation, reply.mutable_generation());
    ToProto(object->info, reply.mutable_info());
    reply.set_complete_copies(object->complete_copies);
    reply.set_partial_copies(object->copies.size() - object->complete_copies);
  } else if (const Tombstone* tombstone = FindDeleted(id)) {
    reply.set_known(true);
    reply.set_deleted(true);
    ToProto(tombstone->generations.front(), reply.mutable_generation());
  }
  if (object == nullptr) return;
  reply.set_waiting(object->waiting.size());
  reply.set_conflicts(object->conflicts);
  const BroadcastMark* mark = broadcasts_.MarkOf(id);
  reply.set_sticky(mark != nullptr && mark->on());
  if (!names.empty()) CountNamed(*object, names, reply);
}

bool DirectoryCore::Impl::HasOtherCompleteCopy(const Object& object, const NodeKey& but) const {
  for (const auto& [key, copy] : object.copies) {
    if (!copy.complete || copy.stale || copy.unconfirmed || key == but) continue;
    const Node* node = FindNode(key);
    if (node != nullptr && node->connected && !node->draining) return true;
  }
  return false;
}

absl::Status DirectoryCore::Impl::OnEvict(Node& node, const v1::EvictRequest& m) {
  PHALANX_ASSIGN_OR_RETURN(const ObjectId id, ParseObjectId(m.object_id()));
  PHALANX_ASSIGN_OR_RETURN(const Generation generation, ParseGeneration(m.generation()));
  Object* object = FindObject(id);
  bool granted = true;
  if (object != nullptr && object->adopted && object->generation == generation) {
    const auto copy = object->copies.find(node.key);
    const bool listed = copy != object->copies.end();
    if (listed) copy->second.unconfirmed = false;
    const bool needed = listed && (copy->second.complete || copy->second.writer) &&
                        !HasOtherCompleteCopy(*object, node.key);
    granted = !needed || DefectActive(Defect::kEvictLastCopy);
    // Asked again, it may be granted on that node's word.
    Node* other = granted ? nullptr : FindUnconfirmed(*object, node.key);
    if (other != nullptr) SendFetch(other->key, id, /*keep=*/false, /*only_confirm=*/true);
    if (granted && listed) {
      StrikeCopy(*object, node.key);
      // Ordered while it had the copy: that has not brought it to fetch another one.
      broadcasts_.OrderAgain(id, node.key, [this](const ObjectId& of, const NodeKey& key) {
        return LacksCopy(of, key);
      });
    } else {
      if (listed && copy->second.complete) broadcasts_.Arrived(id, node.key);
      ReviewSole(*object);
    }
  } else if (object != nullptr) {
    // What stands by may be the only one that is left.
    const Attempt* attempt = FindAttempt(*object, generation, node.key);
    granted = attempt == nullptr || attempt->superseded;
  }
  ++(granted ? counters_.evictions_granted : counters_.evictions_refused);
  v1::EvictReply& reply = *Send(node.key).mutable_evict_reply();
  reply.set_object_id(m.object_id());
  ToProto(generation, reply.mutable_generation());
  reply.set_granted(granted);
  if (object != nullptr) Settle(*object);
  return absl::OkStatus();
}

}  // namespace phalanx::directory
