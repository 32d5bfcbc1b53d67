#include "src/directory/core/status_report.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "src/directory/placement/placement_policy.h"
#include "src/directory/reductions/report/reduction_report.h"

namespace phalanx::directory {
namespace {

constexpr uint32_t kDefaultListed = 1000;
constexpr uint32_t kMaxListed = 10000;
// One answer examines no more ids, listed or not, and has no more bytes (the last object may exceed
// them).
constexpr uint32_t kMaxExamined = 2 * kMaxListed;
constexpr size_t kMaxListedBytes = 2 << 20;
// Of the copies, and of the waiting nodes, that are described.
constexpr size_t kMaxDescribedBytes = 1 << 20;
// Receivers that reach no sender, described by one answer.
constexpr size_t kMaxTroubles = 64;

uint64_t NanosBetween(Instant from, Instant to) {
  return static_cast<uint64_t>(std::max<int64_t>(0, to.nanos() - from.nanos()));
}

}  // namespace

void StatusReport::Summarize(const Object& object, Instant now, v1::ObjectSummary* out) const {
  out->set_object_id(object.id.binary().data(), ObjectId::kSize);
  if (object.adopted()) {
    ToProto(object.generation, out->mutable_generation());
    parts_.objects.WriteInfo(object, now, out->mutable_info());
    out->mutable_info()->clear_name();
  }
  SetName(object.info.name, out);
  out->set_age_ns(NanosBetween(object.since, now));
  out->set_complete_copies(object.copies.complete());
  out->set_partial_copies(object.copies.size() - object.copies.complete());
  out->set_waiting(object.waiting.size());
  out->set_inline_cached(object.inline_entry.cached());
  out->set_conflicts(object.conflicts);
  out->set_reducing(parts_.reductions.IsReducing(object.id));
  out->set_holders(parts_.holds.Holders(object.id));
  if (const PlacementPolicy* policy = parts_.placements.PolicyOf(object.id); policy != nullptr) {
    if (policy->sticky()) ToProto(*policy, out->mutable_sticky());
    if (policy->copies > 0) {
      out->set_copies_wanted(policy->copies);
      out->set_copies_there(HostsWithPrimary(object, parts_.nodes));
    }
  }
}

void StatusReport::Summarize(const Tombstone& tombstone, Instant now,
                             v1::ObjectSummary* out) const {
  out->set_object_id(tombstone.id.binary().data(), ObjectId::kSize);
  ToProto(tombstone.last, out->mutable_generation());
  out->mutable_info()->set_size_bytes(tombstone.size_bytes);
  out->mutable_info()->set_slices(tombstone.slices);
  SetName(tombstone.Name(), out);
  out->set_age_ns(NanosBetween(parts_.tombstones.Since(tombstone), now));
  out->set_deleted(true);
}

void StatusReport::DescribeCopy(const Object& object, const NodeKey& key, const Copy& copy,
                                Instant now, v1::CopyDescription* out) const {
  ToProto(key, out->mutable_node());
  if (const Node* node = parts_.nodes.Find(key)) {
    out->set_name(node->info.name());
    out->set_connected(node->connected);
  }
  out->set_complete(copy.complete());
  out->set_primary(copy.primary);
  out->mutable_watermarks()->Add(copy.watermarks.begin(), copy.watermarks.end());
  const auto want = object.wants.find(key);
  out->set_pulling(want != object.wants.end() && want->second.state == WantState::kPulling);
  for (const RelayTree* tree : object.trees.all()) {
    if (const auto* member = tree->Find(key)) {
      out->set_receivers(out->receivers() + member->receivers);
    }
  }
  // A copy that was created here, or arrived inline, was never pulled.
  if (copy.pull == nullptr) return;
  const PullRecord& pull = *copy.pull;
  ToProto(pull.sender, out->mutable_sender());
  if (const Node* sender = parts_.nodes.Find(pull.sender))
    out->set_sender_name(sender->info.name());
  if (const Node* second = parts_.nodes.Find(pull.second_sender))
    out->set_second_sender_name(second->info.name());
  out->set_plan_id(pull.plan);
  out->set_bytes_per_second(pull.bytes_per_second);
  out->set_bytes_received(pull.bytes_received);
  out->set_starved_ns(pull.starved_ns);
  out->set_elapsed_ns(NanosBetween(pull.started, std::min(now, pull.ended)));
  out->set_repairs(pull.repairs);
}

void StatusReport::AddNames(const Reduction& reduction, v1::ReductionDescription* out) const {
  size_t bytes = 0;
  const auto add = [out, &bytes](const ObjectId& id, const ObjectName& name) {
    if (name.empty() || bytes >= kMaxDescribedBytes) return;
    v1::NamedObject& named = *out->add_names();
    ToProto(id, named.mutable_object_id());
    ToProto(name, named.mutable_name());
    bytes += named.ByteSizeLong();
  };
  const auto add_source = [this, &reduction, &add](const std::string& id_bytes) {
    const ObjectId id = *ObjectId::FromBinary(id_bytes);
    // A source belongs to this shard, or its own shard reports its name with its state.
    if (const Object* object = parts_.objects.Find(id)) return add(id, object->info.name);
    const auto foreign = reduction.sources.foreign.find(id);
    if (foreign != reduction.sources.foreign.end()) add(id, NameOf(foreign->second));
  };
  add(reduction.target, reduction.name);
  for (const v1::ReductionDescription::Slot& slot : out->slots()) {
    for (const std::string& source : slot.source_ids()) add_source(source);
  }
  for (const std::string& source : out->missing_source_ids()) add_source(source);
}

absl::Status StatusReport::Describe(const ObjectId& id, Instant now,
                                    v1::DescribeObjectResponse* out) const {
  const Object* const found = parts_.objects.Find(id);
  const Tombstone* tombstone = parts_.tombstones.FindDeleted(id);
  const bool live = found != nullptr && found->adopted();
  if (std::string nodes = parts_.delete_waits.WaitsFor(id); !nodes.empty()) {
    out->set_delete_waits_for(std::move(nodes));
  }
  // An object that exists only because nodes wait for it does not hide the deletion.
  if (!live && tombstone != nullptr) {
    Summarize(*tombstone, now, out->mutable_summary());
    return absl::OkStatus();
  }
  const Reduction* const reduction = parts_.reductions.catalog().Find(id);
  if (reduction != nullptr) {
    DescribeReduction(*reduction, parts_.nodes, now, out->mutable_reduction());
    AddNames(*reduction, out->mutable_reduction());
  }
  // The target exists only when the root announces it.
  if (found == nullptr && reduction != nullptr) {
    out->mutable_summary()->set_object_id(id.binary().data(), ObjectId::kSize);
    out->mutable_summary()->set_reducing(true);
    SetName(reduction->name, out->mutable_summary());
    return absl::OkStatus();
  }
  if (found == nullptr) {
    return absl::NotFoundError(absl::StrCat("object ", id.hex(), ": no node has or wants it"));
  }
  const Object& object = *found;
  Summarize(object, now, out->mutable_summary());
  for (std::string& trouble : parts_.pulls.routes().TroublesOf(object, kMaxTroubles)) {
    out->add_troubles(std::move(trouble));
  }
  // Bounded by bytes, not by entries: names and labels have any length.
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
    *out->add_waiting() = parts_.nodes.Find(key)->info;
    bytes += out->waiting(out->waiting_size() - 1).ByteSizeLong();
  }
  out->set_waiting_left_out(object.waiting.size() - out->waiting_size());
  return absl::OkStatus();
}

absl::Status StatusReport::List(const v1::ListObjectsRequest& request, Instant now,
                                v1::ListObjectsResponse* out) const {
  const uint32_t limit =
      request.limit() == 0 ? kDefaultListed : std::min(request.limit(), kMaxListed);
  const auto& objects = parts_.objects.all();
  auto object = objects.begin();
  const Tombstone* deleted = nullptr;
  if (!request.without_deleted()) deleted = parts_.tombstones.FindAfter(ObjectId());
  if (!request.after_object_id().empty()) {
    const auto after = ObjectId::FromBinary(request.after_object_id());
    if (!after.ok()) {
      return absl::InvalidArgumentError(
          absl::StrCat("after_object_id: ", after.status().message()));
    }
    object = objects.upper_bound(*after);
    if (!request.without_deleted()) deleted = parts_.tombstones.FindAfter(*after);
  }
  size_t bytes = 0;
  // Two ordered lists merged; an id with both is alive again.
  for (uint32_t examined = 0; object != objects.end() || deleted != nullptr; ++examined) {
    const bool full = out->objects_size() == static_cast<int>(limit) || bytes >= kMaxListedBytes;
    if (full || examined == kMaxExamined) {
      out->set_more(true);
      return absl::OkStatus();
    }
    const bool deleted_first =
        object == objects.end() || (deleted != nullptr && deleted->id < object->first);
    const ObjectId& id = deleted_first ? deleted->id : object->first;
    // Also for an id that is not listed: the next page continues behind it, or it would be examined
    // again.
    out->set_listed_to(id.binary().data(), ObjectId::kSize);
    // An id that was put again, and of which nothing is left, is not listed.
    const bool listed = !deleted_first || !deleted->revived;
    if (!deleted_first) {
      Summarize(*object->second, now, out->add_objects());
    } else if (listed) {
      Summarize(*deleted, now, out->add_objects());
    }
    if (listed) bytes += out->objects(out->objects_size() - 1).ByteSizeLong();
    if (deleted != nullptr && deleted->id == id) deleted = parts_.tombstones.FindAfter(id);
    if (!deleted_first) ++object;
  }
  return absl::OkStatus();
}

void StatusReport::FillStatus(Instant now, v1::GetStatusResponse* out) const {
  for (const auto& [key, node] : parts_.nodes.all()) {
    v1::NodeStatus& status = *out->add_nodes();
    *status.mutable_info() = node->info;
    status.set_connected(node->connected);
    status.set_draining(node->draining);
    status.set_copies(node->copies);
    status.set_pulls(node->pulls);
    status.set_pushes(parts_.pulls.planner().Pushes(key));
    status.set_last_heard_ns(NanosBetween(node->last_heard, now));
  }
  out->set_uptime_ns(NanosBetween(parts_.context.start, now));
  out->set_objects(parts_.objects.all().size());
  out->set_reductions(parts_.reductions.catalog().all().size());
  ListReductions(parts_.reductions.catalog(), now, out);
  out->set_tombstones(parts_.tombstones.size());
  out->set_inline_bytes(parts_.inline_cache.bytes());
  out->set_waiting(parts_.pulls.waiting_wants());
  FillCounters(StatusCounters(out));
}

// The names are part of what the tools print.
void StatusReport::FillCounters(StatusCounters counters) const {
  counters.Counter("creates", parts_.context.counters.creates);
  counters.Counter("adopted", parts_.context.counters.adopted);
  counters.Counter("superseded", parts_.context.counters.superseded);
  counters.Counter("conflicts", parts_.context.counters.conflicts);
  counters.Counter("wants", parts_.context.counters.wants);
  counters.Counter("wants_refused", parts_.context.counters.wants_refused);
  counters.Counter("delivered", parts_.context.counters.delivered);
  counters.Counter("assigned", parts_.context.counters.assigned);
  counters.Counter("repairs", parts_.context.counters.repairs);
  counters.Counter("relieved", parts_.context.counters.relieved);
  counters.Counter("probes", parts_.context.counters.probes);
  counters.Counter("moves_refused", parts_.pulls.planner().moves_refused());
  counters.Counter("pulls_completed", parts_.context.counters.pulls_completed);
  counters.Counter("pulls_failed", parts_.context.counters.pulls_failed);
  counters.Counter("pulls_relayed", parts_.context.counters.pulls_relayed);
  counters.Counter("splits", parts_.context.counters.splits);
  counters.Counter("late_messages", parts_.context.counters.late_messages);
  counters.Counter("voided", parts_.context.counters.voided);
  counters.Counter("lost", parts_.context.counters.lost);
  counters.Counter("deleted", parts_.context.counters.deleted);
  counters.Counter("freed", parts_.context.counters.freed);
  counters.Counter("expired", parts_.context.counters.expired);
  counters.Counter("claims", parts_.context.counters.claims);
  counters.Gauge("holds", parts_.holds.holds());
  counters.Gauge("holds_complete", parts_.holds.complete() ? 1 : 0);
  counters.Counter("reductions", parts_.context.counters.reductions);
  counters.Counter("reductions_committed", parts_.context.counters.reductions_committed);
  counters.Counter("reductions_failed", parts_.context.counters.reductions_failed);
  counters.Counter("rings", parts_.context.counters.rings);
  counters.Counter("folds_placed", parts_.context.counters.folds_placed);
  counters.Counter("slow_replaced", parts_.context.counters.slow_replaced);
  counters.Counter("folds_relayed", parts_.context.counters.folds_relayed);
  counters.Counter("folds_dropped", parts_.context.counters.folds_dropped);
  counters.Counter("reduce_sources_examined", parts_.context.counters.reduce_sources_examined);
  counters.Gauge("jobs", parts_.jobs.jobs().size());
  counters.Gauge("job_members", parts_.jobs.members());
  counters.Gauge("joins_waiting", parts_.jobs.waiting());
  counters.Counter("joins", parts_.context.counters.joins);
  counters.Counter("members_died", parts_.context.counters.members_died);
  counters.Counter("members_refused", parts_.context.counters.members_refused);
  counters.Counter("members_left", parts_.context.counters.members_left);
  counters.Counter("job_updates", parts_.context.counters.job_updates);
  counters.Gauge("sticky", parts_.placements.sticky());
  counters.Gauge("broadcasts_waited_for", parts_.placements.requests());
  counters.Gauge("ended_scopes", parts_.scopes.ended());
  counters.Gauge("scope_objects", parts_.scopes.objects());
  counters.Gauge("scopes_waited_for", parts_.scopes.requests());
  counters.Counter("freed_by_scope", parts_.context.counters.freed_by_scope);
  counters.Gauge("short_of_copies", parts_.copies.short_of_copies());
  counters.Gauge("copies_waited_for", parts_.copies.requests());
  counters.Counter("copy_orders", parts_.copies.orders());
  counters.Counter("copy_releases", parts_.copies.releases());
  counters.Counter("broadcast_orders", parts_.placements.orders());
  counters.Counter("broadcast_refusals", parts_.placements.refusals());
  counters.Counter("broadcasts_examined", parts_.placements.examined());
  counters.Counter("evictions_granted", parts_.context.counters.evictions_granted);
  counters.Counter("evictions_refused", parts_.context.counters.evictions_refused);
  counters.Counter("candidates_examined", parts_.pulls.planner().candidates_examined());
  counters.Counter("members_visited", parts_.pulls.planner().members_visited());
}

}  // namespace phalanx::directory
