#include "src/collectives/reducer/kept_reductions.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/time/time.h"
#include "src/directory/core/validate.h"

namespace phalanx::collectives {

bool KeptReductions::OnKeep(const ObjectId& target, const v1::KeepReduction& keep, Instant now) {
  const ReductionId number = directory::ReductionIdFromProto(keep.reduction().begun());
  const auto known = kept_.find(target);
  const bool another = known != kept_.end() && known->second.number.valid() && number.valid() &&
                       known->second.number != number;
  if (keep.forget()) {
    // A later reduction of the target can have replaced the one to be forgotten.
    if (known != kept_.end() && !another) kept_.erase(known);
    return !another;
  }
  // The kept parts are of another reduction's list: the shard sends this one's from the start.
  if (another) kept_.erase(known);
  // A descriptor that is not kept weakens a restart; a shard could otherwise fill this node's
  // memory.
  if (kept_.size() >= kMaxKept && !kept_.contains(target)) return false;
  if (keep.reduction().first_source() > kMaxReduceSources) return false;
  Kept& kept = kept_[target];
  kept.number = number;
  AddPart(keep.reduction(), kept);
  kept.owned = keep.owned();
  kept.deadline =
      keep.timeout_ms() == 0 ? Instant::Infinite() : now + absl::Milliseconds(keep.timeout_ms());
  return false;
}

// A part that begins within a known part, or at its end, extends that part: registrations stay as
// few as the gaps in the list.
void KeptReductions::AddPart(const v1::Reduction& part, Kept& kept) {
  const uint32_t first = part.first_source();
  auto before = kept.parts.upper_bound(first);
  if (before == kept.parts.begin() ||
      first - std::prev(before)->first >
          static_cast<uint32_t>(std::prev(before)->second.source_ids_size())) {
    kept.parts[first] = part;
    return;
  }
  v1::Reduction& grown = std::prev(before)->second;
  const int known = grown.source_ids_size() - static_cast<int>(first - grown.first_source());
  for (int i = known; i < part.source_ids_size(); ++i) grown.add_source_ids(part.source_ids(i));
  if (part.closed()) grown.set_closed(true);
}

void KeptReductions::Register(const std::function<bool(const ObjectId& target)>& chosen,
                              Instant now, std::vector<v1::NodeMessage>& messages) {
  // A reduction whose deadline has passed would begin again only to end.
  std::erase_if(kept_, [now](const auto& kept) { return kept.second.deadline <= now; });
  for (const auto& [target, kept] : kept_) {
    if (!chosen(target)) continue;
    for (const auto& [first, part] : kept.parts) {
      v1::ReduceRequest* request = messages.emplace_back().mutable_reduce_request();
      directory::ToProto(target, request->mutable_object_id());
      *request->mutable_reduction() = part;
      request->set_again(true);
      request->set_owned(kept.owned);
      if (kept.deadline.infinite()) continue;
      // 0 would mean no deadline.
      const int64_t ms = absl::ToInt64Milliseconds(kept.deadline - now);
      request->set_timeout_ms(static_cast<uint64_t>(std::max<int64_t>(1, ms)));
    }
  }
}

}  // namespace phalanx::collectives
