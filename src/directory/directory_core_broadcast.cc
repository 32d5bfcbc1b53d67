// Broadcasts: who is to have which object. What is asked for and what nodes do is told to
// Broadcasts, which decides whom to order; a node that is ordered wants the object like any other.
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "src/common/status_macros.h"
#include "src/directory/directory_core_impl.h"

namespace phalanx::directory {

absl::Status DirectoryCore::Impl::OnBroadcast(Node& node, const v1::BroadcastRequest& m) {
  PHALANX_ASSIGN_OR_RETURN(const ObjectId id, ParseObjectId(m.object_id()));
  if (m.end()) {
    broadcasts_.Leave(id, node.key, m.request_id());
    // One that has not begun does so all the same; nobody waits for it.
    for (DeferredBroadcast& deferred : deferred_broadcasts_) {
      const bool its = deferred.node == node.key && deferred.request.request_id() == m.request_id();
      deferred.left = deferred.left || its;
    }
    return absl::OkStatus();
  }
  if (!m.stop()) PHALANX_RETURN_IF_ERROR(ParseNodeNames(m.nodes()).status());
  PHALANX_RETURN_IF_ERROR(ParseMark(m.mark()).status());
  if (!Learning()) {
    BeginBroadcast(node, m);
  } else if (!Defer(node, m)) {
    v1::BroadcastReply& reply = *Send(node.key).mutable_broadcast_reply();
    reply.set_request_id(m.request_id());
    reply.set_code(static_cast<int>(absl::StatusCode::kResourceExhausted));
    reply.set_message("too many broadcasts wait for the end of the shard's first lease already");
  }
  return absl::OkStatus();
}

// Who is there, and what they have, is known when the first lease is over.
bool DirectoryCore::Impl::Defer(const Node& node, const v1::BroadcastRequest& m) {
  const size_t bytes = BytesOf(m.nodes()) + BytesOf(m.mark().nodes());
  if (deferred_broadcasts_.size() >= options_.max_broadcasts) return false;
  if (bytes > options_.max_deferred_name_bytes - deferred_name_bytes_) return false;
  deferred_name_bytes_ += bytes;
  deferred_broadcasts_.push_back({node.key, node.session, m});
  return true;
}

absl::StatusOr<BroadcastMark> DirectoryCore::Impl::ParseMark(const v1::StickyMark& mark) {
  if (mark.stamp() == 0 || mark.stamp() > Broadcasts::kMaxStamp) return BroadcastMark();
  BroadcastMark parsed{mark.stamp(), {}};
  if (mark.nodes_size() > 0) {
    PHALANX_ASSIGN_OR_RETURN(parsed.nodes, ParseNodeNames(mark.nodes()));
  }
  return parsed;
}

void DirectoryCore::Impl::MergeMark(const v1::BroadcastRequest& m) {
  const ObjectId id = *ParseObjectId(m.object_id());
  const Object* object = FindObject(id);
  const BroadcastMark mark = *ParseMark(m.mark());
  if (!m.begun() || mark.stamp == 0 || object == nullptr || !object->adopted) return;
  broadcasts_.Merge(id, mark,
                    [this](const ObjectId& of, const NodeKey& key) { return LacksCopy(of, key); });
}

void DirectoryCore::Impl::AnswerDeferredBroadcasts() {
  for (const auto& [key, node] : nodes_) {
    if (!node->registering) broadcasts_.NodeJoined(key, node->info.name());
  }
  const std::vector<DeferredBroadcast> all = std::exchange(deferred_broadcasts_, {});
  // What has begun in an earlier life of the shard has begun before the others.
  for (const DeferredBroadcast& deferred : all) MergeMark(deferred.request);
  for (const DeferredBroadcast& deferred : all) {
    const v1::BroadcastRequest& m = deferred.request;
    deferred_name_bytes_ -= BytesOf(m.nodes()) + BytesOf(m.mark().nodes());
    Node* node = FindNode(deferred.node);
    // In a new session the node asks again.
    if (node != nullptr && node->session == deferred.session) {
      BeginBroadcast(*node, deferred.request);
    }
    if (!deferred.left) continue;
    broadcasts_.Leave(*ParseObjectId(deferred.request.object_id()), deferred.node,
                      deferred.request.request_id());
  }
}

std::vector<Node*> DirectoryCore::Impl::NodesCalled(
    absl::btree_set<absl::string_view>& names) const {
  const bool everybody = names.erase("*") != 0;
  std::vector<Node*> called;
  for (const auto& [key, node] : nodes_) {
    const bool named = names.erase(node->info.name()) != 0;
    if (named || everybody) called.push_back(node.get());
  }
  return called;
}

void DirectoryCore::Impl::BeginBroadcast(Node& node, const v1::BroadcastRequest& m) {
  const ObjectId id = *ParseObjectId(m.object_id());
  const auto answer = [&](const absl::Status& status) {
    v1::BroadcastReply& reply = *Send(node.key).mutable_broadcast_reply();
    reply.set_request_id(m.request_id());
    if (status.ok()) return;
    reply.set_code(static_cast<int>(status.code()));
    reply.set_message(absl::StrCat("object ", id.hex(), ": ", status.message()));
  };
  const Object* object = FindObject(id);
  const bool there = object != nullptr && object->adopted;
  // Also of what is lost, which would be sticky again when it is put again; and of what somebody
  // who is away was told by an earlier life of the shard.
  if (m.stop() && (broadcasts_.MarkOf(id) != nullptr || (there && !options_.first_life))) {
    broadcasts_.Stop(id);
    return answer(absl::OkStatus());
  }
  const auto lost = lost_.find(id);
  if (m.stop() && lost != lost_.end() && lost->second.mark.on()) {
    RememberMark(lost->second, broadcasts_.MintStop());
    return answer(absl::OkStatus());
  }
  if (!there && FindDeleted(id) != nullptr) return answer(absl::NotFoundError("it was deleted"));
  if (!there && m.begun()) return answer(absl::DataLossError("no copy of it is left"));
  if (!there) return answer(absl::NotFoundError("nothing was put under this id"));
  if (m.stop()) return answer(absl::OkStatus());
  MergeMark(m);
  absl::btree_set<absl::string_view> names(m.nodes().begin(), m.nodes().end());
  const std::vector<Node*> called = NodesCalled(names);
  if (!names.empty() && !m.sticky() && !m.begun()) {
    v1::BroadcastReply& reply = *Send(node.key).mutable_broadcast_reply();
    reply.set_request_id(m.request_id());
    reply.set_code(static_cast<int>(absl::StatusCode::kNotFound));
    reply.set_message(NoNodeIsCalled(id, names));
    return;
  }
  uint32_t arrived = 0;
  absl::btree_set<NodeKey> missing;
  for (const Node* other : called) {
    if (HasConfirmed(*object, other->key)) {
      ++arrived;
    } else if (!other->draining) {
      missing.insert(other->key);
    }
  }
  const Broadcasts::Asker asker{node.key, m.request_id(),
                                absl::btree_set<std::string>(m.nodes().begin(), m.nodes().end()),
                                m.sticky(), m.begun()};
  const absl::Status begun = broadcasts_.Ask(
      id, asker, arrived, std::move(missing),
      [this](const ObjectId& of, const NodeKey& key) { return LacksCopy(of, key); });
  if (!begun.ok()) answer(begun);
}

bool DirectoryCore::Impl::HasConfirmed(const Object& object, const NodeKey& key) {
  const auto copy = object.copies.find(key);
  return copy != object.copies.end() && copy->second.complete && !copy->second.unconfirmed &&
         !copy->second.stale;
}

bool DirectoryCore::Impl::LacksCopy(const ObjectId& id, const NodeKey& key) const {
  const auto found = objects_.find(id);
  const Node* node = FindNode(key);
  if (Learning() || node == nullptr || node->registering || node->draining) return false;
  if (found == objects_.end() || HasConfirmed(*found->second, key)) return false;
  const auto copy = found->second->copies.find(key);
  return copy == found->second->copies.end() || !copy->second.writer;
}

void DirectoryCore::Impl::TakeMark(const Object& object, const NodeKey& key,
                                   const BroadcastMark& mark) {
  if (mark.stamp == 0) return;
  broadcasts_.Registered(object.id, key, mark, [this](const ObjectId& of, const NodeKey& other) {
    return LacksCopy(of, other);
  });
}

void DirectoryCore::Impl::KeepMark(const Object& object) {
  const auto lost = lost_.find(object.id);
  const BroadcastMark* mark = broadcasts_.MarkOf(object.id);
  if (lost != lost_.end() && mark != nullptr) RememberMark(lost->second, *mark);
}

void DirectoryCore::Impl::RememberMark(LostObject& lost, BroadcastMark mark) {
  lost_name_bytes_ -= BytesOf(lost.mark.nodes);
  const size_t bytes = BytesOf(mark.nodes);
  lost.mark =
      bytes <= options_.max_lost_name_bytes - lost_name_bytes_ ? std::move(mark) : BroadcastMark();
  lost_name_bytes_ += BytesOf(lost.mark.nodes);
}

void DirectoryCore::Impl::RestoreMark(const Object& object) {
  const auto lost = lost_.find(object.id);
  if (lost == lost_.end()) return;
  broadcasts_.Merge(object.id, lost->second.mark,
                    [this](const ObjectId& of, const NodeKey& key) { return LacksCopy(of, key); });
}

void DirectoryCore::Impl::BroadcastAnew(const Object& object) {
  broadcasts_.BeginAnew(
      object.id, [this](const ObjectId& of, const NodeKey& key) { return LacksCopy(of, key); });
}

void DirectoryCore::Impl::LeaveBroadcasts(const Node& node) {
  broadcasts_.NodeLeaves(node.key, [this](const ObjectId& id, const NodeKey& key) {
    const Object* object = FindObject(id);
    if (object == nullptr) return false;
    const auto want = object->wants.find(key);
    return want != object->wants.end() && want->second.pulling;
  });
}

void DirectoryCore::Impl::EndBroadcast(const Object& object, const absl::Status& why) {
  broadcasts_.End(object.id, why);
}

// ---- what was decided

void DirectoryCore::Impl::RunBroadcasts() {
  if (broadcasts_.walking()) {
    broadcasts_.Walk([this](const ObjectId& of, const NodeKey& key) { return LacksCopy(of, key); });
  }
  for (const BroadcastEffect& effect : broadcasts_.TakeEffects()) {
    std::visit([this](const auto& decided) { Carry(decided); }, effect);
  }
}

void DirectoryCore::Impl::Carry(const OrderFetch& effect) {
  // It may have ended in the same turn.
  if (!broadcasts_.IsOrdered(effect.id, effect.to)) return;
  broadcasts_.Ordered(effect.id, effect.to, SendFetch(effect.to, effect.id, /*keep=*/false));
}

void DirectoryCore::Impl::Carry(const TellMark& effect) {
  const Object* object = FindObject(effect.id);
  const BroadcastMark* mark = broadcasts_.MarkOf(effect.id);
  if (object == nullptr || mark == nullptr) return;
  for (const auto& [key, copy] : object->copies) {
    if (effect.only.has_value() && *effect.only != key) continue;
    // What is stale is told when its node registers it.
    const bool has = (copy.complete || copy.writer) && !copy.stale;
    if (has && copy.registered_stamp != mark->stamp) TellMarkTo(*object, key, *mark);
  }
}

void DirectoryCore::Impl::Carry(const TellBegun& effect) {
  if (FindNode(effect.node) == nullptr) return;
  v1::BroadcastBegun& begun = *Send(effect.node).mutable_broadcast_begun();
  begun.set_request_id(effect.request_id);
  if (effect.mark.stamp != 0) WriteMark(effect.mark, begun.mutable_mark());
}

void DirectoryCore::Impl::WriteMark(const BroadcastMark& mark, v1::StickyMark* out) {
  out->set_stamp(mark.stamp);
  out->mutable_nodes()->Add(mark.nodes.begin(), mark.nodes.end());
}

void DirectoryCore::Impl::TellMarkTo(const Object& object, const NodeKey& key,
                                     const BroadcastMark& mark) {
  v1::Sticky& sticky = *Send(key).mutable_sticky();
  sticky.set_object_id(object.id.binary().data(), ObjectId::kSize);
  ToProto(object.generation, sticky.mutable_generation());
  WriteMark(mark, sticky.mutable_mark());
}

void DirectoryCore::Impl::Carry(const AnswerBroadcast& effect) {
  if (FindNode(effect.node) == nullptr) return;
  v1::BroadcastReply& reply = *Send(effect.node).mutable_broadcast_reply();
  reply.set_request_id(effect.request_id);
  reply.set_nodes(effect.arrived);
  absl::Status status = effect.why;
  const Object* object = FindObject(effect.id);
  const bool lost = object == nullptr || (object->complete_copies == 0 && !HasWriter(*object));
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

// ---- how far it has come

void DirectoryCore::Impl::CountNamed(const Object& object, absl::Span<const std::string> names,
                                     v1::QueryReply& out) {
  absl::btree_set<absl::string_view> left(names.begin(), names.end());
  uint32_t named = 0;
  uint32_t complete = 0;
  uint64_t bytes = 0;
  uint32_t without_room = 0;
  for (const Node* node : NodesCalled(left)) {
    const auto copy = object.copies.find(node->key);
    const bool there = HasConfirmed(object, node->key);
    if (!there && node->draining) continue;
    ++named;
    if (there) {
      ++complete;
      bytes += object.info.size_bytes;
    } else if (copy != object.copies.end() && !copy->second.complete) {
      for (const uint64_t watermark : copy->second.watermarks) bytes += watermark;
    }
    const auto want = object.wants.find(node->key);
    const bool waits = want != object.wants.end() && LacksRoom(object, want->second);
    if (!there && (waits || broadcasts_.RefusedBy(object.id, node->key))) ++without_room;
  }
  out.set_named(named);
  out.set_named_complete(complete);
  out.set_named_bytes(bytes);
  out.set_named_without_room(without_room);
}

}  // namespace phalanx::directory
