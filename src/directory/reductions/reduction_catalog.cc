#include "src/directory/reductions/reduction_catalog.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "src/common/ids/open_hold.h"
#include "src/common/ids/version.h"

namespace phalanx::directory {
namespace {

// A count beyond this is not one that a shard minted.
constexpr uint64_t kMaxCount = uint64_t{1} << 62;

}  // namespace

absl::Status ReductionError(const ObjectId& target, absl::StatusCode code, absl::string_view what) {
  return absl::Status(code, absl::StrCat("reduction of ", target.hex(), ": ", what));
}

Reduction* ReductionCatalog::Find(const ObjectId& target) {
  const auto found = running_.find(target);
  return found == running_.end() ? nullptr : found->second.get();
}

const Reduction* ReductionCatalog::Find(const ObjectId& target) const {
  const auto found = running_.find(target);
  return found == running_.end() ? nullptr : found->second.get();
}

Reduction* ReductionCatalog::FindByOpenHold(const ObjectId& id) {
  const auto found = by_open_hold_.find(id);
  return found == by_open_hold_.end() ? nullptr : Find(found->second);
}

Reduction* ReductionCatalog::Begin(const ObjectId& target, ReduceSpec spec, const NodeKey& root,
                                   const ReductionId& id) {
  // Ten thousand sources in one reduction cost as much as in many, so both are limited.
  const bool full = running_.size() >= context_.options.max_reductions;
  if (full || !HasRoomForSources(spec.sources.size())) return nullptr;
  auto& reduction = running_[target];
  reduction = std::make_unique<Reduction>(target, std::move(spec), root);
  reduction->started = context_.now;
  reduction->identity.confirmed = id.valid();
  reduction->identity.id =
      id.valid() ? id : MakeReductionId(context_.life_low, context_.life_high, ++greatest_count_);
  // Kept if a node names an earlier id later: until then this one was sent to others.
  reduction->identity.minted_id = reduction->identity.id;
  reduction->identity.target_reused =
      !ended_.Of(target).empty() || tombstones_.Find(target) != nullptr;
  if (reduction->plan.spec().open) {
    reduction->identity.open_hold = OpenHoldOf(target, context_.options.num_shards);
    by_open_hold_[reduction->identity.open_hold] = target;
  }
  return reduction.get();
}

void ReductionCatalog::Erase(Reduction& reduction) {
  for (const auto& [first, part] : reduction.replicas.list_parts) sources_ -= part.size();
  if (!reduction.timer.infinite()) timers_.erase({reduction.timer, reduction.target});
  // A copy: the id is a member of what is erased.
  const ObjectId target = reduction.target;
  touched_.erase(target);
  by_open_hold_.erase(reduction.identity.open_hold);
  running_.erase(target);
}

// In the order of ids: plans of one turn are made in the same order in every replay.
ObjectId ReductionCatalog::TakeTouched() {
  const ObjectId target = *touched_.begin();
  touched_.erase(touched_.begin());
  return target;
}

void ReductionCatalog::SetTimer(Reduction& reduction, Instant when) {
  if (when >= reduction.timer) return;
  if (!reduction.timer.infinite()) timers_.erase({reduction.timer, reduction.target});
  reduction.timer = when;
  timers_.insert({when, reduction.target});
}

Reduction* ReductionCatalog::TakeDue() {
  if (timers_.empty() || timers_.begin()->first > context_.now) return nullptr;
  Reduction* reduction = Find(timers_.begin()->second);
  timers_.erase(timers_.begin());
  // Reset first: SetTimer ignores a time that is not earlier than the current one.
  reduction->timer = Instant::Infinite();
  return reduction;
}

Instant ReductionCatalog::NextDeadline() const {
  return timers_.empty() ? Instant::Infinite() : timers_.begin()->first;
}

void ReductionCatalog::NoteId(const ReductionId& id) {
  if (!id.valid() || CountOf(id) >= kMaxCount) return;
  // The sequence of an id is its count plus one (MakeReductionId).
  greatest_count_ = std::max(greatest_count_, CountOf(id));
}

bool ReductionCatalog::MintedHere(const ReductionId& id) const {
  return MintedTogether(id, MakeReductionId(context_.life_low, context_.life_high, 1));
}

bool ReductionCatalog::HasEnded(const ObjectId& target, const ReductionId& id) const {
  const Reduction* running = Find(target);
  if (!id.valid() || (running != nullptr && running->Is(id))) return false;
  // An id of this life that does not run has ended, whether or not its outcome is still remembered.
  if (MintedHere(id) || tombstones_.Refuses(target, id.AsGeneration())) return true;
  if (running != nullptr && running->identity.confirmed && BeganAfter(running->identity.id, id))
    return true;
  // When a reduction that this life began itself has ended, every one of an earlier life has, too.
  for (const auto& [of, ended] : ended_.Of(target)) {
    const bool later = MintedTogether(of, id) ? CountOf(of) >= CountOf(id) : MintedHere(of);
    if (later) return true;
  }
  const Tombstone* deleted = tombstones_.Find(target);
  if (deleted == nullptr) return false;
  const std::vector<Generation> all = tombstones_.Generations(*deleted);
  return std::any_of(all.begin(), all.end(), [this](const Generation& of) {
    return MintedHere(ReductionId::FromGeneration(of));
  });
}

absl::Status ReductionCatalog::CheckInvariants() const {
  size_t sources = 0;
  size_t requesters = 0;
  for (const auto& [target, reduction] : running_) {
    requesters += reduction->requests.waiting.size();
    for (const auto& [first, part] : reduction->replicas.list_parts) sources += part.size();
    sources += reduction->plan.spec().sources.size();
    const bool timed =
        reduction->timer.infinite() || timers_.contains({reduction->timer, reduction->target});
    if (!timed) {
      return absl::InternalError(
          absl::StrCat("reduction of ", target.hex(), ": its timer is lost"));
    }
  }
  if (sources != sources_) return absl::InternalError("sources are miscounted");
  if (requesters != requesters_) return absl::InternalError("requesters are miscounted");
  return ended_.CheckInvariants();
}

}  // namespace phalanx::directory
