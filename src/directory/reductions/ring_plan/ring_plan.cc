#include "src/directory/reductions/ring_plan/ring_plan.h"

#include <algorithm>
#include <numeric>
#include <string>
#include <utility>

#include "src/common/defects.h"
#include "src/common/slice_layout.h"

namespace phalanx::directory {
namespace {

constexpr int kLeastMembers = 3;
// Slices begin at multiples of 64 bytes. A ring gains nothing for smaller slices than this.
constexpr uint64_t kLeastSliceBytes = 4096;

double Transfer(double bytes, const ReduceCosts& costs) {
  return bytes / std::min(costs.bytes_per_second, costs.fold_per_second);
}

// A slice passes every member twice: once to be folded, once to be handed on.
double Hops(int members, double segment_bytes, const ReduceCosts& costs) {
  return 2.0 * (members - 1) *
         (absl::ToDoubleSeconds(costs.latency) + segment_bytes / costs.bytes_per_second);
}

using Holder = ReduceSource::Holder;

// The holder that folds each source. Null: only the shard has the bytes; or, with `apart`, all its
// holders fold other sources.
std::vector<const Holder*> HoldersOf(absl::Span<const RingPlan::Known> sources, bool apart) {
  std::vector<const Holder*> places(sources.size(), nullptr);
  std::vector<size_t> in_turn(sources.size());
  std::iota(in_turn.begin(), in_turn.end(), size_t{0});
  // Those first that have the least choice.
  if (apart) {
    std::stable_sort(in_turn.begin(), in_turn.end(), [&](size_t a, size_t b) {
      return sources[a].state.holders.size() < sources[b].state.holders.size();
    });
  }
  absl::btree_set<NodeKey> taken;
  for (const size_t source : in_turn) {
    for (const Holder& holder : sources[source].state.holders) {
      if (apart && !taken.insert(holder.node).second) continue;
      places[source] = &holder;
      break;
    }
  }
  return places;
}

}  // namespace

absl::Duration RingTime(int members, uint64_t size_bytes, const ReduceCosts& costs) {
  const double share = 2.0 * (members - 1) / members;
  // A hop hands on one segment of each slice in turn.
  const double segment = static_cast<double>(costs.segment_bytes) * members;
  return absl::Seconds(Hops(members, segment, costs) +
                       Transfer(share * static_cast<double>(size_bytes), costs));
}

absl::Duration ReduceAndBroadcastTime(int members, uint64_t size_bytes, const ReduceCosts& costs) {
  const double segment = static_cast<double>(costs.segment_bytes);
  return absl::Seconds(Hops(members, segment, costs) +
                       Transfer(2.0 * static_cast<double>(size_bytes), costs));
}

bool RingPlan::Possible(const ReduceSpec& spec, const NodeKey& root) {
  const bool all = spec.num_objects == 0 || spec.num_objects == spec.sources.size();
  const bool whole = spec.range_offset == 0 && spec.range_bytes == 0;
  const bool order = spec.order == ReduceSpec::Order::kRing ||
                     (spec.order == ReduceSpec::Order::kArrival && !root.valid());
  return all && whole && !spec.open && order && spec.sources.size() >= kLeastMembers;
}

std::optional<RingPlan> RingPlan::Choose(const ReduceSpec& spec, absl::Span<const Known> sources,
                                         const ReduceCosts& costs, const SlotVersion& version,
                                         const Generation& generation) {
  RingPlan plan;
  plan.version_ = version;
  plan.generation_ = generation;
  plan.sources_ = sources.size();
  const bool ring_only = spec.order == ReduceSpec::Order::kRing;
  const std::vector<const Holder*> holders = HoldersOf(sources, ring_only);
  std::optional<std::string> zone;
  for (size_t i = 0; i < sources.size(); ++i) {
    const Known& source = sources[i];
    const Holder* const holder = holders[i];
    // A member folds its own copy, so every source needs a node that has one.
    if (holder == nullptr || !source.state.generation.valid()) return std::nullopt;
    if (i == 0) {
      plan.size_bytes_ = source.state.size_bytes;
      plan.generation_.creator = holder->node;
    }
    if (source.state.size_bytes != plan.size_bytes_) return std::nullopt;
    // The tree ends the reduction, with the error.
    const bool alike =
        spec.source_metadata.empty() || source.state.metadata == spec.source_metadata;
    if (!alike) return std::nullopt;
    if (plan.metadata_.empty()) plan.metadata_ = source.state.metadata;
    // In a ring every slice crosses the links between zones, which are slower.
    if (zone.value_or(holder->zone) != holder->zone) return std::nullopt;
    zone = holder->zone;
    auto member = std::find_if(plan.members_.begin(), plan.members_.end(),
                               [&](const Member& m) { return m.node == holder->node; });
    if (member == plan.members_.end()) {
      member = plan.members_.insert(plan.members_.end(), Member{holder->node, {}});
    }
    // Each member has one slice.
    if (plan.members_.size() > kMaxSlices) return std::nullopt;
    member->own.push_back({source.id, source.state.generation});
    plan.folded_[source.id] = source.state.generation;
  }
  const int members = static_cast<int>(plan.members_.size());
  if (members < kLeastMembers) return std::nullopt;
  if (!CheckWhole(spec.elements, plan.size_bytes_).ok()) return std::nullopt;
  if (SliceLayout{plan.size_bytes_, members}.Size(members - 1) < kLeastSliceBytes) {
    return std::nullopt;
  }
  const bool faster = RingTime(members, plan.size_bytes_, costs) <
                      ReduceAndBroadcastTime(members, plan.size_bytes_, costs);
  if (!faster && !ring_only) return std::nullopt;
  return plan;
}

std::optional<size_t> RingPlan::PlaceOf(const NodeKey& node) const {
  for (size_t place = 0; place < members_.size(); ++place) {
    if (members_[place].node == node) return place;
  }
  return std::nullopt;
}

const NodeKey& RingPlan::Before(size_t place) const {
  return members_[(place + members_.size() - 1) % members_.size()].node;
}

void RingPlan::OnSource(const ObjectId& source, const Generation& generation) {
  // The bytes of the old generation are folded to the end. A later Put does not change the result.
  if (committed_) return;
  const auto folded = folded_.find(source);
  if (folded != folded_.end() && folded->second != generation) broken_ = true;
}

void RingPlan::OnLost(const NodeKey& node) {
  if (PlaceOf(node)) broken_ = true;
}

bool RingPlan::OnReady(const NodeKey& node) {
  // If the ring is broken, the tree computes the result: two commits would be two results.
  if (committed_ || broken_ || !PlaceOf(node)) return false;
  ready_.insert(node);
  committed_ = ready_.size() == members_.size() || DefectActive(Defect::kRingCommittedEarly);
  return committed_;
}

}  // namespace phalanx::directory
