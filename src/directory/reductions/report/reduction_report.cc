#include "src/directory/reductions/report/reduction_report.h"

#include <algorithm>
#include <vector>

#include "absl/container/btree_set.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "src/directory/core/reduce_messages.h"
#include "src/directory/pulls/failed_pairs.h"
namespace phalanx::directory {
namespace {

constexpr size_t kMaxMissingNamed = 4;   // missing sources, in an error
constexpr size_t kMaxTroublesNamed = 2;  // of folds, in an error

void DescribeFolder(const Reduction& reduction, const NodeTable& nodes, const NodeKey& node,
                    const SlotVersion& version, v1::ReductionDescription::Slot& out) {
  ToProto(node, out.mutable_node());
  if (const Node* known = nodes.Find(node)) {
    out.set_node_name(known->info.name());
    out.set_connected(known->connected);
  }
  const auto placed = reduction.placed.find({node, version});
  // The fold waits to be placed, or its node is down.
  if (placed == reduction.placed.end()) return;
  out.set_watermark(placed->second.watermark);
  out.set_bytes_per_second(placed->second.bytes_per_second);
  out.set_trouble(placed->second.trouble);
  for (const auto& [input, route] : reduction.routes) {
    if (route.parent == node && route.parent_version == version) out.set_trouble(route.why);
  }
}

// The troubles of the folds, each after "; ".
std::string Troubles(const Reduction& reduction) {
  absl::btree_set<std::string> troubles;
  for (const auto& [input, route] : reduction.routes) troubles.insert(route.why);
  for (const auto& [key, placed] : reduction.placed) {
    if (!placed.trouble.empty()) troubles.insert(placed.trouble);
  }
  std::string text;
  size_t named = 0;
  for (const std::string& trouble : troubles) {
    if (named++ == kMaxTroublesNamed) return absl::StrCat(text, "; ...");
    absl::StrAppend(&text, "; ", trouble);
  }
  return text;
}

void DescribeRing(const Reduction& reduction, const NodeTable& nodes,
                  v1::ReductionDescription* out) {
  const RingPlan& ring = *reduction.ring.plan;
  out->set_ring(true);
  out->set_degree(1);
  out->set_size_bytes(ring.size_bytes());
  out->set_committed(ring.committed());
  for (size_t place = 0; place < ring.members().size(); ++place) {
    const RingPlan::Member& member = ring.members()[place];
    v1::ReductionDescription::Slot& to = *out->add_slots();
    to.set_slot(static_cast<uint32_t>(place));
    // In a ring the next member takes the place of the parent.
    to.set_parent(static_cast<int32_t>((place + 1) % ring.members().size()));
    ToProto(ring.version(), to.mutable_version());
    for (const RingPlan::Own& own : member.own) {
      to.add_source_ids(own.id.binary().data(), ObjectId::kSize);
    }
    DescribeFolder(reduction, nodes, member.node, ring.version(), to);
  }
}

}  // namespace

std::string DescribeWaiting(const Reduction& reduction) {
  const ReducePlan::View view = reduction.plan.Look();
  const ReduceSpec& spec = reduction.plan.spec();
  const size_t needed = spec.num_objects != 0 ? spec.num_objects : spec.sources.size();
  if (reduction.committed()) return "its result is being published";
  // Before the count: while the list is open, no number of sources is enough.
  if (spec.open && !reduction.plan.closed()) return "it was not closed in time";
  if (view.ready >= needed) {
    return absl::StrCat(view.ready, " sources are being folded", Troubles(reduction));
  }
  std::vector<std::string> missing;
  for (const ObjectId& source : spec.sources) {
    if (missing.size() == kMaxMissingNamed) break;
    if (!reduction.sources.ready.contains(source)) missing.push_back(source.hex());
  }
  return absl::StrCat(view.ready, " of ", needed,
                      " sources are there; missing: ", absl::StrJoin(missing, ", "),
                      missing.size() == kMaxMissingNamed ? ", ..." : "");
}

std::string DescribeFailure(const NodeTable& nodes, const NodeKey& node, const v1::FoldReport& m) {
  const Node* sender = nodes.Find(FromProto(m.sender()));
  const auto code = static_cast<absl::StatusCode>(m.code());
  if (sender == nullptr || !FailedPairs::IsUnreached(code)) return m.message();
  // What precedes the address repeats the object and the sender.
  absl::string_view cause = m.message();
  const std::string address = sender->info.address();
  const std::string before = absl::StrCat("at ", address, ": ");
  if (const size_t at = cause.find(before); !address.empty() && at != absl::string_view::npos) {
    cause.remove_prefix(at + before.size());
  }
  return absl::StrCat(nodes.NameOf(node), " cannot reach ", nodes.NameOf(sender->key), " (",
                      address, "): ", cause);
}

void ListReductions(const ReductionCatalog& catalog, Instant now, v1::GetStatusResponse* out) {
  constexpr size_t kMaxReductionsListed = 16;
  // The oldest ones are the most likely to be stuck.
  std::vector<const Reduction*> oldest;
  for (const auto& [target, reduction] : catalog.all()) oldest.push_back(reduction.get());
  const size_t listed = std::min(oldest.size(), kMaxReductionsListed);
  std::partial_sort(oldest.begin(), oldest.begin() + static_cast<ptrdiff_t>(listed), oldest.end(),
                    [](const Reduction* a, const Reduction* b) { return a->started < b->started; });
  oldest.resize(listed);
  for (const Reduction* reduction : oldest) {
    const ReducePlan::View view = reduction->plan.Look();
    const ReduceSpec& spec = reduction->plan.spec();
    v1::RunningReduction& to = *out->add_running_reductions();
    to.set_object_id(reduction->target.binary().data(), ObjectId::kSize);
    to.set_ready(view.ready);
    to.set_needed(spec.num_objects != 0 ? spec.num_objects : spec.sources.size());
    to.set_size_bytes(view.size_bytes);
    to.set_elapsed_ns(
        static_cast<uint64_t>(std::max<int64_t>(0, now.nanos() - reduction->started.nanos())));
    to.set_state(DescribeWaiting(*reduction));
    SetName(reduction->name, &to);
    const auto root =
        reduction->placed.find({reduction->plan.RootNode(), reduction->plan.RootVersion()});
    if (root != reduction->placed.end()) to.set_watermark(root->second.watermark);
  }
}

void DescribeReduction(const Reduction& reduction, const NodeTable& nodes, Instant now,
                       v1::ReductionDescription* out) {
  constexpr int kMaxSlotsDescribed = 4096;
  constexpr int kMaxMissingDescribed = 256;
  const ReduceSpec& spec = reduction.plan.spec();
  const ReducePlan::View view = reduction.plan.Look();
  ToProto(spec, reduction.plan.root(), out->mutable_reduction());
  out->set_ready(view.ready);
  out->set_needed(spec.num_objects != 0 ? spec.num_objects : spec.sources.size());
  // While too few sources are ready, none of them is a spare, whether it is placed or not.
  const size_t needed = out->needed();
  out->set_spares(view.ready > needed ? view.ready - needed : 0);
  out->set_degree(view.degree);
  out->set_epoch(view.epoch);
  out->set_size_bytes(view.size_bytes);
  out->set_committed(reduction.committed());
  out->set_asking(reduction.requests.waiting.size());
  out->set_elapsed_ns(
      static_cast<uint64_t>(std::max<int64_t>(0, now.nanos() - reduction.started.nanos())));
  if (reduction.ring.plan != nullptr) return DescribeRing(reduction, nodes, out);
  for (const ReducePlan::SlotView& slot : view.slots) {
    if (out->slots_size() == kMaxSlotsDescribed) break;
    v1::ReductionDescription::Slot& to = *out->add_slots();
    to.set_slot(slot.slot);
    to.set_parent(slot.parent);
    if (slot.version.valid()) ToProto(slot.version, to.mutable_version());
    for (const ObjectId& id : slot.own) to.add_source_ids(id.binary().data(), ObjectId::kSize);
    if (slot.node.valid()) DescribeFolder(reduction, nodes, slot.node, slot.version, to);
  }
  out->set_slots_left_out(view.slots.size() - out->slots_size());
  for (const ObjectId& source : spec.sources) {
    if (out->missing_source_ids_size() == kMaxMissingDescribed) break;
    if (!reduction.sources.ready.contains(source)) {
      out->add_missing_source_ids(source.binary().data(), ObjectId::kSize);
    }
  }
}

}  // namespace phalanx::directory
