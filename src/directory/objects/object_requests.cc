#include "src/directory/objects/object_requests.h"

#include <functional>
#include <utility>
#include <vector>

#include "absl/container/btree_set.h"
#include "absl/strings/str_cat.h"
#include "src/common/check.h"
#include "src/common/defects.h"
#include "src/common/ids/version.h"
#include "src/common/status_macros.h"

namespace phalanx::directory {

// A result that is on its way, or a retry of the request, must not bring the reduction back. The
// tombstone of its id refuses both; nodes register it at a shard that restarts.
void ObjectRequests::AddReductionTombstone(const ObjectId& id, const ReductionId& reduction_id) {
  parts_.losses.Erase(id);
  parts_.tombstones.Add(id, reduction_id.AsGeneration());
  if (Object* object = parts_.objects.Find(id)) parts_.objects.Reevaluate(*object);
}

// A node that is down can return with a copy: the tombstone refuses it.
void ObjectRequests::AddLostTombstone(const ObjectId& id) {
  const LostObject* lost = parts_.losses.Find(id);
  if (lost == nullptr) return;
  ++parts_.context.counters.deleted;
  // A copy: Erase ends `lost`.
  const Generation generation = lost->generation;
  parts_.losses.Erase(id);
  parts_.tombstones.Add(id, generation).SetObject(0, 1, ObjectName());
  if (Object* object = parts_.objects.Find(id)) parts_.objects.Reevaluate(*object);
}

absl::Status ObjectRequests::OnDelete(Node& node, const v1::DeleteRequest& m) {
  PHALANX_ASSIGN_OR_RETURN(const ObjectId id, ParseObjectId(m.object_id()));
  // NotFound now would be wrong if a node still registers the object, and that copy would stay.
  if (parts_.objects.MustLearnAbout(id)) {
    if (parts_.gate.Defer(id,
                          {node.key, node.session, m.request_id(), DeferredRequest::Kind::kDelete}))
      return absl::OkStatus();
    v1::DeleteReply& reply = *parts_.outbox.Send(node.key).mutable_delete_reply();
    reply.set_request_id(m.request_id());
    reply.set_code(static_cast<int>(absl::StatusCode::kResourceExhausted));
    reply.set_message(parts_.gate.FullMessage(id));
    return absl::OkStatus();
  }
  AnswerDelete(id, node.key, m.request_id());
  return absl::OkStatus();
}

void ObjectRequests::AnswerDelete(const ObjectId& id, const NodeKey& node, uint64_t request_id) {
  // First: a running reduction would adopt its result again after the deletion.
  const ReductionManager::Cancelled cancelled = parts_.reductions.CancelDeleted(id);
  Object* object = parts_.objects.Find(id);
  const bool adopted = object != nullptr && object->adopted();
  if (!adopted) AddLostTombstone(id);
  if (cancelled.was_running && !adopted) AddReductionTombstone(id, cancelled.id);
  // The root's node can return with the result: the tombstone refuses it.
  if (cancelled.was_running && !adopted && cancelled.announced.valid()) {
    parts_.tombstones.AddOlder(id, cancelled.announced);
  }
  const bool deleted = parts_.tombstones.FindDeleted(id) != nullptr;
  if (adopted) DeleteObject(*object, Cause::kRequest);
  // Answered when no node serves the deleted bytes any more.
  if (adopted || deleted) return delete_waits_.Begin(id, node, request_id);
  v1::DeleteReply& reply = *parts_.outbox.Send(node).mutable_delete_reply();
  reply.set_request_id(request_id);
  reply.set_code(static_cast<int>(absl::StatusCode::kNotFound));
  reply.set_message(absl::StrCat("object ", id.hex(), ": nothing was put under this id"));
}

void ObjectRequests::ExpireDue() {
  const Instant now = parts_.context.now;
  for (int i = 0; i < ExpiryQueue::kMaxPerTurn; ++i) {
    const ObjectId* due = parts_.expiries.FirstDue(now);
    if (due == nullptr) return;
    // A copy: the entry ends with the object.
    Expire(ObjectId(*due));
  }
}

void ObjectRequests::ExpireIfDue(const ObjectId& id) {
  if (parts_.expiries.Find(id) <= parts_.context.now) Expire(id);
}

void ObjectRequests::Expire(const ObjectId& id) {
  // First, as for a Delete: a running reduction would adopt its result again.
  parts_.reductions.CancelDeleted(id);
  // A generation that only the reduction was to finish has ended with it, and so has its entry.
  // Another can be adopted now, with a time of its own.
  if (parts_.context.now < parts_.expiries.Find(id)) return;
  ++parts_.context.counters.expired;
  Object* object = parts_.objects.Find(id);
  PHALANX_CHECK(object != nullptr && object->adopted(), "only an adopted generation expires");
  DeleteObject(*object, Cause::kExpiry);
}

void ObjectRequests::DeleteObject(Object& object, Cause cause) {
  const bool spare_others = cause == Cause::kDeletion;
  const bool expired = cause == Cause::kExpiry;
  ++parts_.context.counters.deleted;
  parts_.placement_table.End(
      object.id, absl::NotFoundError(expired ? "its time to live had passed" : "it was deleted"));
  parts_.reductions.OnResultDeleted(object.id);
  // The tombstone takes over from the loss: both would answer a Get differently.
  parts_.losses.Erase(object.id);
  Tombstone& tombstone = parts_.tombstones.Add(object.id, object.generation);
  tombstone.SetObject(object.info.size_bytes, object.info.slices, object.info.name);
  tombstone.by_ttl = expired;
  DeleteStandbys(object, tombstone, spare_others);
  // First, so that receivers that still want the object are not sent DELETED.
  if (spare_others) VoidReceivers(object);
  absl::btree_set<NodeKey> notified;
  std::vector<NodeKey> stale;
  for (const auto& [key, copy] : object.copies) {
    if (copy.stale) {
      stale.push_back(key);
      parts_.tombstones.AwaitConfirm(tombstone, object.generation, key, kNotAsked);
      continue;
    }
    notified.insert(key);
    Node* node = parts_.nodes.Find(key);
    if (node != nullptr)
      parts_.tombstones.AwaitConfirm(tombstone, object.generation, node->key, node->session);
  }
  for (const auto& [key, want] : object.wants) {
    if (!spare_others) notified.insert(key);
  }
  for (const NodeKey& key : notified) {
    parts_.outbox.SendDeleted(key, object.id, object.generation, expired);
  }
  for (const NodeKey& key : notified) {
    parts_.pulls.EndWant(object, key);
    parts_.objects.RemoveCopy(object, key);
    parts_.drains.OnNodeLeft(object, key);
  }
  // Without a message: their nodes are notified when they register the copies.
  for (const NodeKey& key : stale) parts_.objects.RemoveCopy(object, key);
  // Nothing is left but the tombstone, which is kept apart from the objects.
  if (object.standbys.empty() && object.wants.empty()) {
    return parts_.objects.ForgetDeleted(object);
  }
  parts_.objects.ForgetGeneration(object);
  parts_.objects.standbys().AdoptSpared(object);
  parts_.objects.Reevaluate(object);
}

void ObjectRequests::DeleteStandbys(Object& object, Tombstone& tombstone, bool spare_others) {
  const auto spared = [spare_others](const Standby& standby) {
    return spare_others && !standby.stale && !standby.superseded;
  };
  std::vector<NodeKey> standby_nodes;
  for (const Standby& standby : object.standbys) {
    if (spared(standby)) continue;
    standby_nodes.push_back(standby.node);
    // A stale one is refused when its node registers it again.
    parts_.tombstones.AddOlder(object.id, standby.generation);
    if (standby.stale) {
      parts_.tombstones.AwaitConfirm(tombstone, standby.generation, standby.node, kNotAsked);
      continue;
    }
    parts_.outbox.SendVerdict(standby.node, object.id, standby.generation, v1::Verdict::DELETED);
    parts_.tombstones.AwaitConfirm(tombstone, standby.generation, standby.node,
                                   parts_.nodes.Find(standby.node)->session);
  }
  std::erase_if(object.standbys, std::not_fn(spared));
  for (const NodeKey& key : standby_nodes) parts_.objects.UnlinkNodeIfUnused(key, object);
}

void ObjectRequests::VoidReceivers(Object& object) {
  std::vector<NodeKey> receivers;
  for (const auto& [key, want] : object.wants) {
    const auto copy = object.copies.find(key);
    // A writer is not a receiver: its generation is the one that was deleted.
    if (copy == object.copies.end() || copy->second.stale || copy->second.writing()) continue;
    receivers.push_back(key);
  }
  for (const NodeKey& key : receivers) {
    parts_.outbox.SendVoid(key, object.id, object.generation, "it turns out to be deleted");
    parts_.objects.RemoveCopy(object, key);
  }
}

absl::Status ObjectRequests::OnDeleteConfirm(Node& node, const v1::DeleteConfirm& m) {
  PHALANX_ASSIGN_OR_RETURN(const ObjectId id, ParseObjectId(m.object_id()));
  PHALANX_ASSIGN_OR_RETURN(const Generation generation, ParseGeneration(m.generation()));
  parts_.tombstones.Confirm(id, generation, node.key);
  return absl::OkStatus();
}

absl::Status ObjectRequests::OnQuery(Node& node, const v1::QueryRequest& m) {
  PHALANX_ASSIGN_OR_RETURN(const ObjectId id, ParseObjectId(m.object_id()));
  if (m.nodes_size() > 0) PHALANX_RETURN_IF_ERROR(ParseNodeNames(m.nodes()).status());
  std::vector<std::string> names(m.nodes().begin(), m.nodes().end());
  if (parts_.objects.MustLearnAbout(id)) {
    const bool deferred = parts_.gate.Defer(id, {node.key, node.session, m.request_id(),
                                                 DeferredRequest::Kind::kQuery, std::move(names)});
    if (deferred) return absl::OkStatus();
    v1::QueryReply& reply = *parts_.outbox.Send(node.key).mutable_query_reply();
    reply.set_request_id(m.request_id());
    reply.set_code(static_cast<int>(absl::StatusCode::kResourceExhausted));
    reply.set_message(parts_.gate.FullMessage(id));
    return absl::OkStatus();
  }
  AnswerQuery(id, node.key, m.request_id(), names);
  return absl::OkStatus();
}

void ObjectRequests::AnswerQuery(const ObjectId& id, const NodeKey& node, uint64_t request_id,
                                 absl::Span<const std::string> names) {
  v1::QueryReply& reply = *parts_.outbox.Send(node).mutable_query_reply();
  reply.set_request_id(request_id);
  // Also for an id without an object: holds are kept apart from objects.
  reply.set_holders(parts_.holds.Holders(id));
  const Object* object = parts_.objects.Find(id);
  if (object != nullptr && object->adopted()) {
    reply.set_known(true);
    reply.set_complete(object->copies.complete() > 0);
    ToProto(object->generation, reply.mutable_generation());
    parts_.objects.WriteInfo(*object, parts_.context.now, reply.mutable_info());
    reply.set_complete_copies(object->copies.complete());
    reply.set_partial_copies(object->copies.size() - object->copies.complete());
  } else if (const Tombstone* tombstone = parts_.tombstones.FindDeleted(id)) {
    reply.set_known(true);
    reply.set_deleted(true);
    ToProto(tombstone->last, reply.mutable_generation());
  }
  if (object == nullptr) return;
  reply.set_waiting(object->waiting.size());
  reply.set_conflicts(object->conflicts);
  const PlacementPolicy* policy = parts_.placement_table.PolicyOf(id);
  reply.set_sticky(policy != nullptr && policy->sticky());
  if (policy != nullptr && policy->copies > 0) {
    reply.set_copies_wanted(policy->copies);
    reply.set_copies_there(HostsWithPrimary(*object, parts_.nodes));
  }
  if (!names.empty()) parts_.placements.CountNamed(*object, names, reply);
}

absl::Status ObjectRequests::OnEvict(Node& node, const v1::EvictRequest& m) {
  PHALANX_ASSIGN_OR_RETURN(const ObjectId id, ParseObjectId(m.object_id()));
  PHALANX_ASSIGN_OR_RETURN(const Generation generation, ParseGeneration(m.generation()));
  Object* object = parts_.objects.Find(id);
  bool granted = true;
  // Granted by default: the shard does not count on a generation that it does not know.
  if (object != nullptr && object->IsAdopted(generation)) {
    const auto copy = object->copies.find(node.key);
    const bool listed = copy != object->copies.end();
    if (listed) parts_.objects.ConfirmCopy(*object, copy->second);
    const bool needed = listed && (copy->second.complete() || copy->second.writing()) &&
                        !object->HasOtherCompleteCopy(parts_.nodes, node.key);
    // The last complete copy is never evicted: the object would be lost.
    granted = !needed || DefectActive(Defect::kEvictLastCopy);
    // If that node confirms its copy, the next EvictRequest is granted.
    Node* other = granted ? nullptr : object->FindUnconfirmed(parts_.nodes, node.key);
    if (other != nullptr) {
      parts_.outbox.SendFetch(other->key, id, parts_.context.NewPlan(), /*keep=*/false,
                              /*only_confirm=*/true);
    }
    if (granted && listed) {
      parts_.objects.RemoveCopy(*object, node.key);
      parts_.placements.OnEvicted(*object, node.key);
    } else {
      // A request to evict the copy confirms it, which a broadcast or a drain can have waited for.
      if (listed && copy->second.complete()) parts_.placements.OnCopyConfirmed(*object, node.key);
      parts_.placements.OnEvictRefused(*object, node.key);
      parts_.drains.OnCopiesChanged(*object);
    }
  } else if (object != nullptr) {
    // A standby copy may be the last one if the adopted generation dies.
    const Standby* standby = object->FindStandby(generation, node.key);
    granted = standby == nullptr || standby->superseded;
  }
  ++(granted ? parts_.context.counters.evictions_granted
             : parts_.context.counters.evictions_refused);
  v1::EvictReply& reply = *parts_.outbox.Send(node.key).mutable_evict_reply();
  reply.set_object_id(m.object_id());
  ToProto(generation, reply.mutable_generation());
  reply.set_granted(granted);
  if (object != nullptr) parts_.objects.Reevaluate(*object);
  return absl::OkStatus();
}

absl::Status ObjectRequests::OnFail(Node& node, const v1::FailRequest& m) {
  PHALANX_ASSIGN_OR_RETURN(const ObjectId id, ParseObjectId(m.object_id()));
  Object* object = parts_.objects.Find(id);
  v1::FailReply& reply = *parts_.outbox.Send(node.key).mutable_fail_reply();
  reply.set_request_id(m.request_id());
  // The code travels to every Get as it is; OK, or a number of no error, would look like success
  // there.
  if (m.code() <= 0 || m.code() > static_cast<int>(absl::StatusCode::kUnauthenticated)) {
    reply.set_code(static_cast<int>(absl::StatusCode::kInvalidArgument));
    reply.set_message(absl::StrCat("object ", id.hex(), ": ", m.code(), " is no error's code"));
    return absl::OkStatus();
  }
  if (object != nullptr && object->adopted() && object->copies.complete() > 0) {
    reply.set_code(static_cast<int>(absl::StatusCode::kAlreadyExists));
    reply.set_message(absl::StrCat("object ", id.hex(), " was put; it cannot fail any more"));
    return absl::OkStatus();
  }
  parts_.failures.Set(id, absl::Status(static_cast<absl::StatusCode>(m.code()), m.message()));
  parts_.objects.NoteChange(id);
  if (object != nullptr) parts_.objects.Reevaluate(*object);
  return absl::OkStatus();
}

absl::Status ObjectRequests::OnRegisterTombstone(const v1::RegisterTombstone& m) {
  PHALANX_ASSIGN_OR_RETURN(const ObjectId id, ParseObjectId(m.object_id()));
  PHALANX_ASSIGN_OR_RETURN(const Generation generation, ParseGeneration(m.generation()));
  if (DefectActive(Defect::kTombstoneForgottenAtRestart)) return absl::OkStatus();
  // A shard that learns deletes nothing, so an earlier life of it has deleted this generation.
  parts_.gate.NoteEarlierLife();
  OnDeletedGeneration(id, generation);
  return absl::OkStatus();
}

void ObjectRequests::OnDeletedGeneration(const ObjectId& id, const Generation& generation) {
  if (IsReductionId(generation)) {
    parts_.reductions.EndIfDeleted(id, ReductionId::FromGeneration(generation));
  }
  Object* object = parts_.objects.Find(id);
  if (object != nullptr && object->IsAdopted(generation)) {
    // The others were perhaps put after the Delete, of which this shard learns only now.
    DeleteObject(*object, Cause::kDeletion);
  } else {
    const Tombstone* known = parts_.tombstones.FindRefusing(id, generation);
    // Its last holder is refused when it returns, so the object is deleted and not lost any more.
    if (parts_.losses.Contains(id, generation)) parts_.losses.Erase(id);
    // An old tombstone must not end Gets that wait for a later generation of the id.
    const bool revived = (object != nullptr && object->adopted()) ||
                         parts_.losses.Find(id) != nullptr ||
                         (known != nullptr && known->revived) || parts_.reductions.IsReducing(id);
    // Behind the generations that were deleted in this life of the shard: a node's old tombstones
    // must not push out the newest.
    Tombstone& tombstone = parts_.tombstones.AddOlder(id, generation);
    tombstone.revived = revived;
    if (object != nullptr) parts_.objects.standbys().Refuse(*object, generation, tombstone);
    if (object != nullptr) parts_.objects.Reevaluate(*object);
  }
}

}  // namespace phalanx::directory
