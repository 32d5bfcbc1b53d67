// What the shard tells of itself: descriptions for the tools, and the check of its invariants.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "src/directory/directory_core_impl.h"

namespace phalanx::directory {
namespace {

constexpr uint32_t kDefaultListed = 1000;
constexpr uint32_t kMaxListed = 10000;
// One answer looks at no more ids, listed or not, and has no more bytes (one object may go over).
constexpr uint32_t kMaxLookedAt = 2 * kMaxListed;
constexpr size_t kMaxListedBytes = 2 << 20;
// Of the copies, and of those who wait, that are described.
constexpr size_t kMaxDescribedBytes = 1 << 20;

uint64_t NanosBetween(Instant from, Instant to) {
  return static_cast<uint64_t>(std::max<int64_t>(0, to.nanos() - from.nanos()));
}

}  // namespace

void DirectoryCore::Impl::Summarize(const Object& object, v1::ObjectSummary* out) const {
  out->set_object_id(object.id.binary().data(), ObjectId::kSize);
  if (object.adopted) {
    ToProto(object.generation, out->mutable_generation());
    ToProto(object.info, out->mutable_info());
  }
  out->set_complete_copies(object.complete_copies);
  out->set_partial_copies(object.copies.size() - object.complete_copies);
  out->set_waiting(object.waiting.size());
  out->set_inline_cached(object.inline_cached);
  out->set_conflicts(object.conflicts);
  out->set_reducing(reductions_.contains(object.id));
  out->set_holders(holds_.Holders(object.id));
  if (const BroadcastMark* mark = broadcasts_.MarkOf(object.id); mark != nullptr && mark->on()) {
    WriteMark(*mark, out->mutable_sticky());
  }
}

void DirectoryCore::Impl::Summarize(const ObjectId& id, const Tombstone& tombstone,
                                    v1::ObjectSummary* out) const {
  out->set_object_id(id.binary().data(), ObjectId::kSize);
  ToProto(tombstone.generations.front(), out->mutable_generation());
  ToProto(tombstone.info, out->mutable_info());
  out->set_deleted(true);
}

void DirectoryCore::Impl::DescribeCopy(const Object& object, const NodeKey& key, const Copy& copy,
                                       Instant now, v1::CopyDescription* out) const {
  ToProto(key, out->mutable_node());
  if (const Node* node = FindNode(key)) {
    out->set_name(node->info.name());
    out->set_connected(node->connected);
  }
  out->set_complete(copy.complete);
  out->set_primary(copy.primary);
  out->mutable_watermarks()->Add(copy.watermarks.begin(), copy.watermarks.end());
  const auto want = object.wants.find(key);
  out->set_pulling(want != object.wants.end() && want->second.pulling);
  if (object.tree != nullptr) {
    if (const auto* member = object.tree->Find(key)) out->set_receivers(member->receivers);
  }
  if (copy.pull == nullptr) return;
  const PullRecord& pull = *copy.pull;
  ToProto(pull.sender, out->mutable_sender());
  if (const Node* sender = FindNode(pull.sender)) out->set_sender_name(sender->info.name());
  out->set_plan_id(pull.plan);
  out->set_bytes_per_second(pull.bytes_per_second);
  out->set_bytes_received(pull.bytes_received);
  out->set_starved_ns(pull.starved_ns);
  out->set_elapsed_ns(NanosBetween(pull.started, std::min(now, pull.ended)));
  out->set_repairs(pull.repairs);
}

absl::Status DirectoryCore::Impl::Describe(const ObjectId& id, Instant now,
                                           v1::DescribeObjectResponse* out) const {
  const auto found = objects_.find(id);
  const Tombstone* tombstone = FindDeleted(id);
  const bool live = found != objects_.end() && found->second->adopted;
  if (!live && tombstone != nullptr) {
    Summarize(id, *tombstone, out->mutable_summary());
    return absl::OkStatus();
  }
  const auto reduction = reductions_.find(id);
  if (reduction != reductions_.end()) {
    DescribeReduction(*reduction->second, now, out->mutable_reduction());
  }
  if (found == objects_.end() && reduction != reductions_.end()) {
    out->mutable_summary()->set_object_id(id.binary().data(), ObjectId::kSize);
    out->mutable_summary()->set_reducing(true);
    return absl::OkStatus();
  }
  if (found == objects_.end()) {
    return absl::NotFoundError(absl::StrCat("object ", id.hex(), ": no node has or wants it"));
  }
  const Object& object = *found->second;
  Summarize(object, out->mutable_summary());
  size_t bytes = 0;
  for (const auto& [key, copy] : object.copies) {
    if (bytes >= kMaxDescribedBytes) break;
    DescribeCopy(object, key, copy, now, out->add_copies());
    bytes += out->copies(out->copies_size() - 1).ByteSizeLong();
  }
  out->set_copies_left_out(object.copies.size() - out->copies_size());
  bytes = 0;
  for (const auto& [order, key] : object.waiting) {
    if (bytes >= kMaxDescribedBytes) break;
    *out->add_waiting() = FindNode(key)->info;
    bytes += out->waiting(out->waiting_size() - 1).ByteSizeLong();
  }
  out->set_waiting_left_out(object.waiting.size() - out->waiting_size());
  return absl::OkStatus();
}

absl::Status DirectoryCore::Impl::List(const v1::ListObjectsRequest& request,
                                       v1::ListObjectsResponse* out) const {
  const uint32_t limit =
      request.limit() == 0 ? kDefaultListed : std::min(request.limit(), kMaxListed);
  auto object = objects_.begin();
  auto buried = tombstones_listed_.begin();
  if (!request.after_object_id().empty()) {
    const auto after = ObjectId::FromBinary(request.after_object_id());
    if (!after.ok()) {
      return absl::InvalidArgumentError(
          absl::StrCat("after_object_id: ", after.status().message()));
    }
    object = objects_.upper_bound(*after);
    buried = tombstones_listed_.upper_bound(*after);
  }
  size_t bytes = 0;
  // Two ordered lists merged; an id with both is alive again.
  for (uint32_t looked_at = 0; object != objects_.end() || buried != tombstones_listed_.end();
       ++looked_at) {
    const bool full = out->objects_size() == static_cast<int>(limit) || bytes >= kMaxListedBytes;
    if (full || looked_at == kMaxLookedAt) {
      out->set_more(true);
      return absl::OkStatus();
    }
    const bool buried_first =
        object == objects_.end() || (buried != tombstones_listed_.end() && *buried < object->first);
    const ObjectId& id = buried_first ? *buried : object->first;
    out->set_listed_to(id.binary().data(), ObjectId::kSize);
    const Tombstone* tombstone = buried_first ? FindDeleted(id) : nullptr;
    if (!buried_first) {
      Summarize(*object->second, out->add_objects());
    } else if (tombstone != nullptr) {
      Summarize(id, *tombstone, out->add_objects());
    }
    if (!buried_first || tombstone != nullptr)
      bytes += out->objects(out->objects_size() - 1).ByteSizeLong();
    if (buried != tombstones_listed_.end() && *buried == id) ++buried;
    if (!buried_first) ++object;
  }
  return absl::OkStatus();
}

void DirectoryCore::Impl::FillStatus(Instant now, v1::GetStatusResponse* out) const {
  for (const auto& [key, node] : nodes_) {
    v1::NodeStatus& status = *out->add_nodes();
    *status.mutable_info() = node->info;
    status.set_connected(node->connected);
    status.set_draining(node->draining);
    status.set_copies(node->copies);
    status.set_pulls(node->pulls);
    status.set_pushes(planner_.Pushes(key));
    status.set_last_heard_ns(NanosBetween(node->last_heard, now));
  }
  out->set_uptime_ns(NanosBetween(start_, now));
  out->set_objects(objects_.size());
  out->set_reductions(reductions_.size());
  ListReductions(now, out);
  out->set_tombstones(tombstones_.size());
  out->set_inline_bytes(inline_bytes_);
  out->set_waiting(waiting_wants_);
  auto& counters = *out->mutable_counters();
  counters["creates"] = counters_.creates;
  counters["adopted"] = counters_.adopted;
  counters["superseded"] = counters_.superseded;
  counters["conflicts"] = counters_.conflicts;
  counters["wants"] = counters_.wants;
  counters["wants_refused"] = counters_.wants_refused;
  counters["delivered"] = counters_.delivered;
  counters["assigned"] = counters_.assigned;
  counters["repairs"] = counters_.repairs;
  counters["relieved"] = counters_.relieved;
  counters["pulls_completed"] = counters_.pulls_completed;
  counters["pulls_failed"] = counters_.pulls_failed;
  counters["late_messages"] = counters_.late_messages;
  counters["voided"] = counters_.voided;
  counters["lost"] = counters_.lost;
  counters["deleted"] = counters_.deleted;
  counters["freed"] = counters_.freed;
  counters["claims"] = counters_.claims;
  counters["holds"] = holds_.holds();
  counters["holds_complete"] = holds_.complete() ? 1 : 0;
  counters["reductions"] = counters_.reductions;
  counters["reductions_committed"] = counters_.reductions_committed;
  counters["reductions_failed"] = counters_.reductions_failed;
  counters["rings"] = counters_.rings;
  counters["folds_placed"] = counters_.folds_placed;
  counters["folds_dropped"] = counters_.folds_dropped;
  counters["reduce_sources_examined"] = counters_.reduce_sources_examined;
  counters["sticky"] = broadcasts_.sticky();
  counters["broadcasts_waited_for"] = broadcasts_.askers();
  counters["broadcast_orders"] = broadcasts_.orders();
  counters["broadcast_refusals"] = broadcasts_.refusals();
  counters["broadcasts_examined"] = broadcasts_.examined();
  counters["evictions_granted"] = counters_.evictions_granted;
  counters["evictions_refused"] = counters_.evictions_refused;
  counters["candidates_examined"] = planner_.candidates_examined();
  counters["members_visited"] = planner_.members_visited();
}

namespace {

absl::Status Broken(const Object& object, absl::string_view what) {
  return absl::InternalError(absl::StrCat("object ", object.id.hex(), ": ", what));
}

}  // namespace

absl::Status DirectoryCore::Impl::CheckCopies(const Object& object) const {
  int complete = 0;
  int writers = 0;
  for (const auto& [key, copy] : object.copies) {
    const Node* node = FindNode(key);
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

absl::Status DirectoryCore::Impl::CheckWants(const Object& object) const {
  size_t feeds = 0;
  for (const auto& [key, want] : object.wants) {
    const Node* node = FindNode(key);
    if (node == nullptr) return Broken(object, "a node that is down wants it");
    const bool waits = object.waiting.contains({want.order, key});
    if (waits == want.pulling) return Broken(object, "a want neither waits nor pulls, or both");
    const auto copy = object.copies.find(key);
    if (copy != object.copies.end() && copy->second.complete && !copy->second.stale) {
      return Broken(object, "a node wants what it has");
    }
    const BroadcastTree::Member* member = object.tree == nullptr ? nullptr : object.tree->Find(key);
    const bool fed = member != nullptr && !member->feeds.empty();
    if (want.pulling && !fed && !want.outside_sender.valid()) {
      return Broken(object, "a want is assigned to nobody");
    }
    if (!want.pulling && fed) return Broken(object, "a waiting node pulls");
    if (fed) feeds += member->feeds.size();
    const bool lacks_room = LacksRoom(object, want);
    if (lacks_room && want.pulling) return Broken(object, "who has no room for it pulls");
    const bool plannable = !want.pulling && !want.held && !lacks_room && node->connected &&
                           object.adopted && want.not_before <= now_ && object.timer.infinite();
    if (plannable && object.inline_cached) return Broken(object, "a want is not answered");
    const bool writes = copy != object.copies.end() && copy->second.writer;
    if (!plannable || writes || object.tree == nullptr) continue;
    // Somebody could serve it who is not downstream of it: everybody in the index is rooted, it is
    // not.
    if (object.tree->Candidates(Nearness::kWorld, 1) != nullptr) {
      return Broken(object, "a want waits though somebody could serve it");
    }
  }
  if (object.waiting.size() > object.wants.size()) return Broken(object, "a stranger waits");
  if (object.tree != nullptr && object.tree->feeds() != feeds) {
    return Broken(object, "a pull's receiver does not want the object");
  }
  return absl::OkStatus();
}

absl::Status DirectoryCore::Impl::CheckObject(const Object& object) const {
  const bool listed = !object.copies.empty() || !object.wants.empty() || !object.attempts.empty();
  if (!listed && !AwaitsResult(object) && !MayComeBack(object)) {
    return Broken(object, "state without copies, wants or standbys");
  }
  for (const Attempt& attempt : object.attempts) {
    if (FindNode(attempt.node) == nullptr) return Broken(object, "who stands by is down");
    if (object.adopted && attempt.generation == object.generation) {
      return Broken(object, "the adopted generation stands by");
    }
  }
  if (absl::Status status = CheckCopies(object); !status.ok()) return status;
  if (absl::Status status = CheckWants(object); !status.ok()) return status;
  if (object.inline_cached && object.inline_bytes.size() != object.info.size_bytes) {
    return Broken(object, "inline bytes of another size");
  }
  if (object.inline_cached && object.complete_copies == 0 && !Learning()) {
    return Broken(object, "inline bytes without a copy");
  }
  return object.tree == nullptr ? absl::OkStatus() : object.tree->CheckInvariants();
}

absl::Status DirectoryCore::Impl::CheckInvariants() const {
  absl::flat_hash_map<NodeKey, uint64_t> copies;
  absl::flat_hash_map<NodeKey, uint64_t> pulls;
  absl::flat_hash_map<NodeKey, int> pushes;
  uint64_t inline_bytes = 0;
  size_t open = 0;
  size_t waiting = 0;
  for (const auto& [id, object] : objects_) {
    if (absl::Status status = CheckObject(*object); !status.ok()) return status;
    for (const auto& [key, copy] : object->copies) ++copies[key];
    for (const auto& [key, want] : object->wants) {
      if (!want.pulling) continue;
      ++pulls[key];
      if (object->tree == nullptr || want.outside_sender.valid()) continue;
      for (const auto& feed : object->tree->Find(key)->feeds) {
        ++pushes[feed->sender->endpoint.node];
      }
    }
    inline_bytes += object->inline_bytes.size();
    open += object->wants.size();
    waiting += object->waiting.size();
  }
  if (absl::Status status = CheckReductions(); !status.ok()) return status;
  if (absl::Status status = holds_.CheckInvariants(); !status.ok()) return status;
  if (absl::Status status = broadcasts_.CheckInvariants(); !status.ok()) return status;
  if (inline_bytes != inline_bytes_ || inline_bytes_ > options_.inline_cache_bytes) {
    return absl::InternalError("the inline cache is miscounted");
  }
  if (deferred_.empty() && deferred_broadcasts_.empty() && deferred_name_bytes_ != 0) {
    return absl::InternalError("the names that are deferred are miscounted");
  }
  if (tombstones_listed_.size() != tombstones_.size()) {
    return absl::InternalError("not every tombstone is listed");
  }
  if (open != open_wants_ || waiting != waiting_wants_) {
    return absl::InternalError("the wants are miscounted");
  }
  for (const auto& [key, node] : nodes_) {
    const bool right = copies[key] == node->copies && pulls[key] == node->pulls &&
                       pushes[key] == planner_.Pushes(key);
    if (!right) {
      return absl::InternalError(absl::StrCat("node ", node->info.name(), " is miscounted"));
    }
    for (const ObjectId& id : node->objects) {
      if (!objects_.contains(id)) {
        return absl::InternalError(
            absl::StrCat("node ", node->info.name(), " has part in nothing, ", id.hex()));
      }
    }
  }
  return absl::OkStatus();
}

}  // namespace phalanx::directory
