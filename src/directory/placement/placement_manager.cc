#include "src/directory/placement/placement_manager.h"

#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "src/common/status_macros.h"
#include "src/directory/placement/placement_policy.h"

namespace phalanx::directory {

PlacementManager::PlacementManager(const Parts& parts)
    : context_(parts.context),
      nodes_(parts.nodes),
      outbox_(parts.outbox),
      gate_(parts.gate),
      objects_(parts.objects),
      tombstones_(parts.tombstones),
      losses_(parts.losses),
      placements_(parts.placements),
      copies_(parts.copies) {}

absl::Status PlacementManager::OnBroadcast(Node& node, const v1::BroadcastRequest& m) {
  PHALANX_ASSIGN_OR_RETURN(const ObjectId id, ParseObjectId(m.object_id()));
  if (m.end()) {
    placements_.Cancel(id, node.key, m.request_id());
    copies_.Cancel(id, node.key, m.request_id());
    // A deferred request still starts when the gate opens: its orders are sent, and it ends then.
    gate_.CancelBroadcast(node.key, m.request_id());
    return absl::OkStatus();
  }
  // Checked before the request can be deferred: BeginBroadcast takes the fields as valid.
  if (m.copies() > kMaxCopies) {
    return absl::InvalidArgumentError(
        absl::StrCat("copies: ", m.copies(), "; at most ", kMaxCopies));
  }
  const bool names = !m.stop() && m.copies() == 0;
  if (names) PHALANX_RETURN_IF_ERROR(ParseNodeNames(m.nodes()).status());
  PHALANX_RETURN_IF_ERROR(ParsePolicy(m.mark()).status());
  // A shard that learns knows neither all nodes nor all objects: "no such node" and "nothing was
  // put" would both be guesses.
  if (!gate_.learning()) {
    BeginBroadcast(node, m);
  } else if (!gate_.Defer(DeferredBroadcast{node.key, node.session, m})) {
    v1::BroadcastReply& reply = *outbox_.Send(node.key).mutable_broadcast_reply();
    reply.set_request_id(m.request_id());
    reply.set_code(static_cast<int>(absl::StatusCode::kResourceExhausted));
    reply.set_message("too many broadcasts wait for the end of the shard's first lease already");
  }
  return absl::OkStatus();
}

void PlacementManager::BeginBroadcast(Node& node, const v1::BroadcastRequest& m) {
  const ObjectId id = *ParseObjectId(m.object_id());
  const auto answer = [&](const absl::Status& status) {
    v1::BroadcastReply& reply = *outbox_.Send(node.key).mutable_broadcast_reply();
    reply.set_request_id(m.request_id());
    if (status.ok()) return;
    reply.set_code(static_cast<int>(status.code()));
    reply.set_message(absl::StrCat("object ", id.hex(), ": ", status.message()));
  };
  const Object* object = objects_.Find(id);
  const bool there = object != nullptr && object->adopted();
  const bool stop = m.stop() && m.copies() == 0;
  // A lost object is stopped, too: otherwise it would be sticky again when a copy returns. So is an
  // object without a known policy: a node that is away may know one from an earlier life.
  if (stop && (placements_.PolicyOf(id) != nullptr || (there && !context_.options.first_life))) {
    placements_.Stop(id);
    return answer(absl::OkStatus());
  }
  // The policy of a lost object is kept with the loss, for a holder that returns.
  const LostObject* lost = losses_.Find(id);
  if (stop && lost != nullptr && lost->policy.sticky()) {
    losses_.SetPolicy(id, placements_.MintStop(lost->policy.copies));
    return answer(absl::OkStatus());
  }
  if (!there && tombstones_.FindDeleted(id) != nullptr)
    return answer(absl::NotFoundError("it was deleted"));
  // The broadcast had started, so the object existed: it is lost, not unknown.
  if (!there && m.begun()) return answer(absl::DataLossError("no copy of it is left"));
  if (!there) return answer(absl::NotFoundError("nothing was put under this id"));
  if (stop) return answer(absl::OkStatus());
  // Before Begin, which compares the request with the policy that is valid now.
  MergePolicy(m);
  if (m.copies() > 0) {
    const absl::Status begun = BeginCopies(node, m);
    if (!begun.ok()) answer(begun);
    return;
  }
  absl::btree_set<absl::string_view> names(m.nodes().begin(), m.nodes().end());
  const std::vector<Node*> called = nodes_.Named(names);
  // A sticky broadcast may name nodes that come later, and one that had started may name nodes that
  // are gone.
  if (!names.empty() && !m.sticky() && !m.begun()) {
    v1::BroadcastReply& reply = *outbox_.Send(node.key).mutable_broadcast_reply();
    reply.set_request_id(m.request_id());
    reply.set_code(static_cast<int>(absl::StatusCode::kInvalidArgument));
    reply.set_message(nodes_.UnknownMessage(id, names));
    return;
  }
  uint32_t arrived = 0;
  absl::btree_set<NodeKey> missing;
  for (const Node* other : called) {
    if (object->HasConfirmedCopy(other->key)) {
      ++arrived;
    } else if (!other->draining) {
      missing.insert(other->key);
    }
  }
  const PlacementTable::Requester requester{
      node.key, m.request_id(), absl::btree_set<std::string>(m.nodes().begin(), m.nodes().end()),
      m.sticky(), m.begun()};
  const absl::Status begun = placements_.Begin(id, requester, arrived, std::move(missing), Lacks());
  if (!begun.ok()) answer(begun);
}

absl::Status PlacementManager::BeginCopies(Node& node, const v1::BroadcastRequest& m) {
  const ObjectId id = *ParseObjectId(m.object_id());
  placements_.SetCopies(id, {node.key, m.request_id(), {}, false, m.begun()}, m.copies());
  // The keeper learns of the number before the request waits for it.
  ApplyEffects();
  return copies_.Await(id, node.key, m.request_id());
}

void PlacementManager::OnAdopted(const Object& object) {
  copies_.OnCopiesChanged(object.id);
  placements_.OnNewGeneration(object.id, Lacks());
}

void PlacementManager::OnReturned(const Object& object) {
  if (const LostObject* lost = losses_.Find(object.id)) {
    placements_.Merge(object.id, lost->policy, Lacks());
  }
}

void PlacementManager::OnCopiesChanged(const Object& object) { copies_.OnCopiesChanged(object.id); }

void PlacementManager::OnPolicyRegistered(const Object& object, const NodeKey& node,
                                          const PlacementPolicy& policy) {
  placements_.Registered(object.id, node, policy, Lacks());
}

void PlacementManager::OnCopyConfirmed(const Object& object, const NodeKey& node) {
  placements_.Arrived(object.id, node);
}

void PlacementManager::OnReleased(const Object& object) {
  // A holder that returns with a copy restores the policy from the record of the loss.
  const PlacementPolicy* policy = placements_.PolicyOf(object.id);
  if (policy != nullptr) losses_.SetPolicy(object.id, *policy);
  // After SetPolicy, which copies the policy out of the record.
  placements_.End(object.id, absl::DataLossError("no copy of it is left"));
}

// A node that got the Fetch while it still had this copy fetched nothing: it is ordered again.
void PlacementManager::OnEvicted(const Object& object, const NodeKey& node) {
  placements_.OrderAgain(object.id, node, Lacks());
  copies_.OnEvictAsked(object.id, node);
}

void PlacementManager::OnEvictRefused(const Object& object, const NodeKey& node) {
  copies_.OnEvictAsked(object.id, node);
}

bool PlacementManager::LacksCopy(const ObjectId& id, const NodeKey& key) const {
  const Object* object = objects_.Find(id);
  const Node* node = nodes_.Find(key);
  // A node that registers may have a copy that it has not sent yet. One that leaves would be asked
  // for nothing.
  if (gate_.learning() || node == nullptr || node->registering || node->draining) return false;
  if (object == nullptr || object->HasConfirmedCopy(key)) return false;
  const auto copy = object->copies.find(key);
  // A copy that was delivered is asked for as well: the Fetch makes its node confirm it.
  return copy == object->copies.end() || !copy->second.writing();
}

void PlacementManager::NodeDrains(const Node& node) {
  // Its primary copies do not count any more.
  for (const ObjectId& id : Sorted(node.objects)) copies_.OnCopiesChanged(id);
  placements_.NodeDrains(node.key, [this](const ObjectId& id, const NodeKey& key) {
    const Object* object = objects_.Find(id);
    if (object == nullptr) return false;
    const auto want = object->wants.find(key);
    return want != object->wants.end() && want->second.state == WantState::kPulling;
  });
}

void PlacementManager::RunPending() {
  if (placements_.walking()) {
    placements_.Walk(Lacks());
  }
  ApplyEffects();
  copies_.RunPending();
}

void PlacementManager::ApplyEffects() {
  for (const BroadcastEffect& effect : placements_.TakeEffects()) {
    std::visit([this](const auto& decided) { Apply(decided); }, effect);
  }
}

void PlacementManager::Apply(const OrderFetch& effect) {
  // The order may have ended in the same turn.
  if (!placements_.IsOrdered(effect.id, effect.to)) return;
  const PlanId plan = context_.NewPlan();
  outbox_.SendFetch(effect.to, effect.id, plan, /*keep=*/false);
  placements_.Ordered(effect.id, effect.to, plan);
}

void PlacementManager::Apply(const AnnouncePolicy& effect) {
  const Object* object = objects_.Find(effect.id);
  const PlacementPolicy* policy = placements_.PolicyOf(effect.id);
  if (object == nullptr || policy == nullptr) return;
  for (const auto& [key, copy] : object->copies) {
    if (effect.only.has_value() && *effect.only != key) continue;
    // The node of a stale copy is sent the policy when it registers the copy.
    const bool has = (copy.complete() || copy.writing()) && !copy.stale;
    // A node that registered this very policy knows it.
    if (has && copy.registered_stamp != policy->stamp) SendPolicy(*object, key, *policy);
  }
}

void PlacementManager::Apply(const ConfirmStart& effect) {
  if (nodes_.Find(effect.node) == nullptr) return;
  v1::BroadcastBegun& begun = *outbox_.Send(effect.node).mutable_broadcast_begun();
  begun.set_request_id(effect.request_id);
  if (effect.policy.stamp != 0) ToProto(effect.policy, begun.mutable_mark());
}

void PlacementManager::SendPolicy(const Object& object, const NodeKey& key,
                                  const PlacementPolicy& policy) {
  v1::Sticky& sticky = *outbox_.Send(key).mutable_sticky();
  sticky.set_object_id(object.id.binary().data(), ObjectId::kSize);
  ToProto(object.generation, sticky.mutable_generation());
  ToProto(policy, sticky.mutable_mark());
}

void PlacementManager::Apply(const WantCopies& effect) {
  copies_.Want(effect.id, effect.copies, effect.why);
}

void PlacementManager::Apply(const AnswerBroadcast& effect) {
  if (nodes_.Find(effect.node) == nullptr) return;
  v1::BroadcastReply& reply = *outbox_.Send(effect.node).mutable_broadcast_reply();
  reply.set_request_id(effect.request_id);
  reply.set_nodes(effect.arrived);
  absl::Status status = effect.why;
  const Object* object = objects_.Find(effect.id);
  const bool lost =
      object == nullptr || (object->copies.complete() == 0 && object->copies.writing() == 0);
  // Nodes refuse what no sender feeds for a minute: if no copy is left, that is the cause to name.
  if (status.ok() && effect.refused > 0 && lost) {
    status = absl::DataLossError("no complete copy of it is left");
  } else if (status.ok() && effect.refused > 0) {
    const size_t more = effect.refused - effect.refusers.size();
    status = absl::ResourceExhaustedError(
        absl::StrCat(effect.refused, " of ", effect.arrived + effect.refused,
                     " nodes have not taken it: ", absl::StrJoin(effect.refusers, ", "),
                     more == 0 ? "" : absl::StrCat(", and ", more, " more")));
  }
  if (status.ok()) return;
  reply.set_code(static_cast<int>(status.code()));
  reply.set_message(absl::StrCat("object ", effect.id.hex(), ": ", status.message()));
}

void PlacementManager::CountNamed(const Object& object, absl::Span<const std::string> names,
                                  v1::QueryReply& out) {
  absl::btree_set<absl::string_view> left(names.begin(), names.end());
  uint32_t named = 0;
  uint32_t complete = 0;
  uint64_t bytes = 0;
  uint32_t without_room = 0;
  for (const Node* node : nodes_.Named(left)) {
    const auto copy = object.copies.find(node->key);
    const bool there = object.HasConfirmedCopy(node->key);
    // Not waited for, so not counted: else the progress of a broadcast would never be full.
    if (!there && node->draining) continue;
    ++named;
    if (there) {
      ++complete;
      bytes += object.info.size_bytes;
    } else if (copy != object.copies.end() && !copy->second.complete()) {
      for (const uint64_t watermark : copy->second.watermarks) bytes += watermark;
    }
    const auto want = object.wants.find(node->key);
    const bool waits = want != object.wants.end() && object.LacksRoom(want->second);
    if (!there && (waits || placements_.RefusedBy(object.id, node->key))) ++without_room;
  }
  out.set_named(named);
  out.set_named_complete(complete);
  out.set_named_bytes(bytes);
  out.set_named_without_room(without_room);
}

void PlacementManager::MergePolicy(const v1::BroadcastRequest& m) {
  const ObjectId id = *ParseObjectId(m.object_id());
  const Object* object = objects_.Find(id);
  const PlacementPolicy policy = *ParsePolicy(m.mark());
  if (!m.begun() || policy.stamp == 0 || object == nullptr || !object->adopted()) return;
  placements_.Merge(id, policy, Lacks());
}

// Nodes join first, so that the deferred requests find them.
void PlacementManager::EndLearning() {
  copies_.EndLearning();
  for (const auto& [key, node] : nodes_.all()) {
    if (!node->registering) placements_.NodeJoined(key, node->info.name());
  }
  const std::vector<DeferredBroadcast> deferred = gate_.TakeBroadcasts();
  // Policies of an earlier life are merged before new requests extend them.
  for (const DeferredBroadcast& broadcast : deferred) MergePolicy(broadcast.request);
  for (const DeferredBroadcast& broadcast : deferred) {
    const v1::BroadcastRequest& m = broadcast.request;
    Node* node = nodes_.Find(broadcast.node);
    // In a new session a node repeats its requests, except those that were cancelled.
    if (node != nullptr && node->session == broadcast.session) BeginBroadcast(*node, m);
    if (!broadcast.cancelled) continue;
    // Before Cancel, which ends the orders that are not sent yet: a cancelled broadcast continues.
    ApplyEffects();
    placements_.Cancel(*ParseObjectId(m.object_id()), broadcast.node, m.request_id());
  }
}

}  // namespace phalanx::directory
