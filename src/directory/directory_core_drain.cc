// Nodes that are about to leave, and copies made ahead of need.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "src/common/status_macros.h"
#include "src/directory/directory_core_impl.h"

namespace phalanx::directory {
namespace {

// Objects of one leaving node that others fetch at a time.
constexpr size_t kMaxDrainFetches = 64;
// Nodes compared when a new home is looked for, beginning behind the leaving one.
constexpr size_t kMaxTargetsCompared = 64;
// Objects without a home that one turn passes over.
constexpr size_t kMaxPassedOver = 64;
// Unknown nodes that one reply names, so that it fits into a message; and the bytes of each name.
constexpr size_t kMaxNamesTold = 16;
constexpr size_t kMaxNameTold = 256;
// A node that could not take what it was asked to fetch is not asked for it again so soon; twice as
// long each time.
constexpr absl::Duration kFirstRefusalPause = absl::Milliseconds(100);
constexpr absl::Duration kMaxRefusalPause = absl::Seconds(30);

}  // namespace

PlanId DirectoryCore::Impl::SendFetch(const NodeKey& to, const ObjectId& id, bool keep,
                                      bool only_confirm) {
  v1::Fetch& fetch = *Send(to).mutable_fetch();
  fetch.set_object_id(id.binary().data(), ObjectId::kSize);
  fetch.set_keep(keep);
  fetch.set_plan_id(++next_plan_);
  fetch.set_only_confirm(only_confirm);
  return next_plan_;
}

Node* DirectoryCore::Impl::FindUnconfirmed(const Object& object, const NodeKey& but) {
  for (const auto& [key, copy] : object.copies) {
    if (!copy.complete || !copy.unconfirmed || copy.stale || key == but) continue;
    Node* node = FindNode(key);
    if (node != nullptr && node->connected && !node->draining && !node->registering) return node;
  }
  return nullptr;
}

absl::Status DirectoryCore::Impl::OnPrefetch(Node& node, const v1::PrefetchRequest& m) {
  PHALANX_ASSIGN_OR_RETURN(const ObjectId id, ParseObjectId(m.object_id()));
  absl::btree_set<absl::string_view> names(m.nodes().begin(), m.nodes().end());
  const bool everybody = names.erase("*") != 0;
  const Object* object = FindObject(id);
  uint32_t told = 0;
  for (const auto& [key, other] : nodes_) {
    const bool named = names.erase(other->info.name()) != 0;
    if (!named && !everybody) continue;
    ++told;
    const auto has = [&key = key, object] {
      if (object == nullptr) return false;
      const auto copy = object->copies.find(key);
      return object->wants.contains(key) ||
             (copy != object->copies.end() && copy->second.complete && !copy->second.stale);
    };
    if (!has()) SendFetch(key, id, /*keep=*/false);
  }
  v1::PrefetchReply& reply = *Send(node.key).mutable_prefetch_reply();
  reply.set_request_id(m.request_id());
  reply.set_nodes(told);
  if (!names.empty()) {
    reply.set_code(static_cast<int>(absl::StatusCode::kNotFound));
    reply.set_message(NoNodeIsCalled(id, names));
  }
  return absl::OkStatus();
}

std::string DirectoryCore::Impl::NoNodeIsCalled(const ObjectId& id,
                                                const absl::btree_set<absl::string_view>& names) {
  std::vector<std::string> some;
  for (const absl::string_view name : names) {
    if (some.size() == kMaxNamesTold) break;
    const bool long_one = name.size() > kMaxNameTold;
    some.push_back(long_one ? absl::StrCat("one of ", name.size(), " bytes") : std::string(name));
  }
  const size_t more = names.size() - some.size();
  return absl::StrCat("object ", id.hex(), ": no node is called ", absl::StrJoin(some, ", "),
                      more == 0 ? "" : absl::StrCat(", and ", more, " more"));
}

absl::Status DirectoryCore::Impl::OnDrain(Node& node) {
  node.drain_told.reset();
  if (node.draining) return absl::OkStatus();
  node.draining = true;
  draining_.insert(node.key);
  std::vector<ObjectId> ids(node.objects.begin(), node.objects.end());
  std::sort(ids.begin(), ids.end());
  for (const ObjectId& id : ids) {
    Object* object = FindObject(id);
    if (object == nullptr) continue;
    BroadcastTree::Member* member =
        object->tree == nullptr ? nullptr : object->tree->Find(node.key);
    if (member != nullptr) object->tree->SetDraining(member, true);
    ReviewSole(*object);
  }
  StartDrainFetches(node);
  LeaveBroadcasts(node);
  return absl::OkStatus();
}

void DirectoryCore::Impl::ReviewSole(Object& object) {
  if (draining_.empty()) return;
  bool elsewhere = false;
  for (const auto& [key, copy] : object.copies) {
    // What a Deliver brought may be about to be withdrawn: there may be no memory for it.
    const Node* node = copy.complete && !copy.unconfirmed ? FindNode(key) : nullptr;
    if (node != nullptr && !node->draining) elsewhere = true;
    if (elsewhere) break;
  }
  bool wanted = false;
  for (const NodeKey& key : draining_) {
    Node& leaving = *FindNode(key);
    const auto copy = object.copies.find(key);
    const bool sole =
        object.adopted && !elsewhere && copy != object.copies.end() && copy->second.complete;
    wanted = wanted || sole;
    if (!sole) {
      leaving.sole_fetching.erase(object.id);
      leaving.sole_queued.erase(object.id);
      leaving.sole_stuck.erase(object.id);
    } else if (!leaving.sole_fetching.contains(object.id) &&
               !leaving.sole_stuck.contains(object.id)) {
      leaving.sole_queued.insert(object.id);
    }
  }
  if (!wanted) drain_refusals_.erase(object.id);
  if (!wanted && object.drain_target.valid()) {
    const NodeKey target = std::exchange(object.drain_target, NodeKey());
    UninvolveIfDone(target, object);
  }
}

void DirectoryCore::Impl::RefuseDrain(Object& object, const NodeKey& key) {
  if (object.drain_target != key) return;
  auto& [times, until] = drain_refusals_[object.id][key];
  const absl::Duration pause =
      std::min(kMaxRefusalPause, kFirstRefusalPause * (1 << std::min(times, 16)));
  ++times;
  until = now_ + pause;
  ForgetDrainTarget(object, key);
}

bool DirectoryCore::Impl::HasRefusedDrain(const Object& object, const NodeKey& key) const {
  const auto want = object.wants.find(key);
  if (want != object.wants.end() && LacksRoom(object, want->second)) return true;
  const auto of_object = drain_refusals_.find(object.id);
  if (of_object == drain_refusals_.end()) return false;
  const auto refusal = of_object->second.find(key);
  return refusal != of_object->second.end() && refusal->second.until > now_;
}

void DirectoryCore::Impl::AwaitRefusers(Object& object) {
  const auto of_object = drain_refusals_.find(object.id);
  if (of_object == drain_refusals_.end()) return;
  for (const auto& [key, refusal] : of_object->second) {
    if (refusal.until > now_) SetTimer(object, refusal.until);
  }
}

void DirectoryCore::Impl::RetryStuckDrain(const Object& object) {
  for (const NodeKey& key : draining_) {
    Node& leaving = *FindNode(key);
    if (leaving.sole_stuck.erase(object.id) != 0) leaving.sole_queued.insert(object.id);
  }
}

Node* DirectoryCore::Impl::ChooseDrainTarget(const Object& object) {
  // Most probably it has the bytes, and needs no room for them.
  if (Node* node = FindUnconfirmed(object, NodeKey())) return node;
  Node* best = nullptr;
  uint64_t most_room = 0;
  size_t compared = 0;
  // Not always the same few in a large cluster; the same in every replay.
  auto at = nodes_.lower_bound(NodeKey{object.id.ShardHash(), 0});
  for (size_t i = 0; i < nodes_.size() && compared < kMaxTargetsCompared; ++i, ++at) {
    if (at == nodes_.end()) at = nodes_.begin();
    Node& node = *at->second;
    if (!node.connected || node.draining || node.registering) continue;
    ++compared;
    if (HasRefusedDrain(object, node.key)) continue;
    // A node that does not say what it can hold is taken to hold anything.
    const uint64_t capacity = node.info.capacity_bytes();
    const uint64_t used = std::min(capacity, node.info.used_bytes());
    const uint64_t room = capacity == 0 ? kMaxObjectBytes : capacity - used;
    if (room < object.info.size_bytes || (best != nullptr && room <= most_room)) continue;
    best = &node;
    most_room = room;
  }
  return best;
}

void DirectoryCore::Impl::StartDrainFetches(Node& leaving) {
  size_t passed_over = 0;
  while (leaving.sole_fetching.size() < kMaxDrainFetches && passed_over < kMaxPassedOver &&
         !leaving.sole_queued.empty()) {
    const ObjectId id = *leaving.sole_queued.begin();
    Object& object = *FindObject(id);
    if (!object.drain_target.valid()) {
      Node* target = ChooseDrainTarget(object);
      if (target == nullptr) {
        // Others may fit.
        ++passed_over;
        leaving.sole_queued.erase(id);
        leaving.sole_stuck.insert(id);
        AwaitRefusers(object);
        continue;
      }
      object.drain_target = target->key;
      Involve(*target, id);
      SendFetch(target->key, id, /*keep=*/true);
    }
    leaving.sole_queued.erase(id);
    leaving.sole_fetching.insert(id);
  }
}

void DirectoryCore::Impl::StartAllDrainFetches() {
  for (const NodeKey& key : draining_) StartDrainFetches(*FindNode(key));
}

void DirectoryCore::Impl::RetryStuckDrains() {
  for (const NodeKey& key : draining_) {
    Node& leaving = *FindNode(key);
    leaving.sole_queued.merge(leaving.sole_stuck);
    leaving.sole_stuck.clear();
  }
  StartAllDrainFetches();
}

void DirectoryCore::Impl::ForgetDrainTarget(Object& object, const NodeKey& key) {
  if (object.drain_target != key) return;
  object.drain_target = NodeKey();
  UninvolveIfDone(key, object);
  for (const NodeKey& leaving_key : draining_) {
    Node& leaving = *FindNode(leaving_key);
    if (leaving.sole_fetching.erase(object.id) != 0) leaving.sole_queued.insert(object.id);
  }
}

void DirectoryCore::Impl::TellDrains() {
  for (const NodeKey& key : draining_) {
    Node& leaving = *FindNode(key);
    StartDrainFetches(leaving);
    const size_t left =
        leaving.sole_fetching.size() + leaving.sole_queued.size() + leaving.sole_stuck.size();
    if (leaving.drain_told == left) continue;
    leaving.drain_told = left;
    v1::DrainStatus& status = *Send(key).mutable_drain_status();
    status.set_objects_left(left);
    if (leaving.sole_stuck.empty()) continue;
    const ObjectId& stuck = *leaving.sole_stuck.begin();
    status.set_message(absl::StrCat("object ", stuck.hex(), " of ",
                                    FindObject(stuck)->info.size_bytes,
                                    " bytes: no other node has room for it"));
  }
}

}  // namespace phalanx::directory
