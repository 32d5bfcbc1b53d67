#include "src/directory/reductions/tree_plan/source_table.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "src/common/defects.h"

namespace phalanx::directory {

bool Holds(const ReduceSource& state, const NodeKey& node) {
  return std::any_of(state.holders.begin(), state.holders.end(),
                     [&](const ReduceSource::Holder& holder) { return holder.node == node; });
}

bool HoldsComplete(const ReduceSource& state, const NodeKey& node) {
  return std::any_of(
      state.holders.begin(), state.holders.end(),
      [&](const ReduceSource::Holder& holder) { return holder.node == node && holder.complete; });
}

const ReduceSource::Holder& BestHolder(const ReduceSource& state) {
  const auto better = [](const ReduceSource::Holder& a, const ReduceSource::Holder& b) {
    // An incomplete holder can only hand on what it has received.
    return std::make_pair(a.complete, a.speed) < std::make_pair(b.complete, b.speed);
  };
  return *std::max_element(state.holders.begin(), state.holders.end(), better);
}

SourceTable::SourceTable(const PlanInputs& inputs) : inputs_(inputs) {
  for (const ObjectId& id : inputs.spec.sources) Add(id);
}

// ---- the list

void SourceTable::Add(const ObjectId& id) {
  indexes_.emplace(id, size());
  sources_.emplace_back().id = id;
}

int SourceTable::Find(const ObjectId& id) const {
  const auto it = indexes_.find(id);
  return it == indexes_.end() ? kNone : it->second;
}

int SourceTable::wanted() const {
  return inputs_.spec.num_objects > 0 ? static_cast<int>(inputs_.spec.num_objects) : size();
}

int SourceTable::EligibleEnd() const {
  if (inputs_.spec.order != ReduceSpec::Order::kFixed) return size();
  if (failed_ == 0) return wanted();
  // Only a failure or a new source moves the end. Without the cache, every event of a reduction
  // with failures would visit all its sources.
  const auto now = std::make_pair(failed_, size());
  if (eligible_end_for_ != now) {
    eligible_end_for_ = now;
    eligible_end_ = FindEligibleEnd();
  }
  return eligible_end_;
}

int SourceTable::FindEligibleEnd() const {
  CountExamined(sources_.size());
  // Later sources take the places of failed ones.
  int left = wanted();
  int end = 0;
  for (; end < size() && left > 0; ++end) left -= sources_[end].failed() ? 0 : 1;
  return end;
}

// ---- states

void SourceTable::SetState(int index, std::optional<ReduceSource> state) {
  Source& source = sources_[index];
  // Nothing can be read from such a source.
  if (state && state->holders.empty() && !state->has_inline) state.reset();
  // A new attempt arrives anew: bytes of the old one are no lead over other sources.
  const bool new_attempt = source.state && state && source.state->generation != state->generation;
  ready_ += (state ? 1 : 0) - (source.state ? 1 : 0);
  Unlist(index);
  source.state = std::move(state);
  source.speed = SpeedOf(source);
  if (!source.state) source.arrival = 0;
  if (source.state && (source.arrival == 0 || new_attempt)) source.arrival = ++last_arrival_;
  source.arrival &= ~kSlowArrival;
  if (source.slow()) source.arrival |= kSlowArrival;
  List(index);
}

void SourceTable::Unlist(int index) {
  const Source& source = sources_[index];
  waiting_.erase({source.arrival, index});
  seatable_.erase({source.arrival, index});
  slow_seated_.erase({source.speed, index});
}

void SourceTable::List(int index) {
  const Source& source = sources_[index];
  if (source.seatable()) seatable_.insert({source.arrival, index});
  if (source.state && !source.seat.valid()) waiting_.insert({source.arrival, index});
  if (source.slow() && source.seat.valid()) slow_seated_.insert({source.speed, index});
}

double SourceTable::SpeedOf(const Source& source) const {
  const bool any_place = inputs_.spec.order != ReduceSpec::Order::kFixed;
  if (!any_place || !source.seatable() || AtRoot(source)) return 1;
  return BestHolder(*source.state).speed;
}

bool SourceTable::HeldBack(const Source& source) const {
  return source.slow() && ready_ < wanted() && remaining() > wanted();
}

double SourceTable::SlowestSeated() const {
  return slow_seated_.empty() ? 1 : slow_seated_.begin()->first;
}

double SourceTable::SpeedUp() const {
  auto left = slow_seated_.begin();
  for (const auto& [arrival, source] : waiting_) {
    if (left == slow_seated_.end() || sources_[source].slow()) break;
    if (sources_[source].seatable()) ++left;
  }
  if (left == slow_seated_.begin()) return 1;
  const double after = left == slow_seated_.end() ? 1 : left->first;
  return after / std::max(SlowestSeated(), 1e-9);
}

void SourceTable::MarkFailed(int index, const absl::Status& why) {
  Source& source = sources_[index];
  ++failed_;
  last_failed_ = index;
  // The reduction can end with this code, so the code cannot be OK.
  source.failure =
      absl::Status(why.ok() ? absl::StatusCode::kUnknown : why.code(),
                   absl::StrCat("source ", source.id.hex(), " failed: ", why.message()));
}

void SourceTable::ClearFailure(int index) {
  Source& source = sources_[index];
  if (!source.failed()) return;
  source.failure = absl::OkStatus();
  --failed_;
  if (last_failed_ == index) last_failed_ = kNone;
  // Another failure could bring the count to the same value.
  eligible_end_for_ = {-1, 0};
}

absl::Status SourceTable::why_failed() const {
  if (last_failed_ != kNone) return sources_[last_failed_].failure;
  CountExamined(sources_.size());
  const auto failed = std::find_if(sources_.begin(), sources_.end(),
                                   [](const Source& source) { return source.failed(); });
  return failed == sources_.end() ? absl::OkStatus() : failed->failure;
}

const SourceTable::Source* SourceTable::FirstSeatable() const {
  return seatable_.empty() ? nullptr : &sources_[seatable_.begin()->second];
}

bool SourceTable::AtRoot(const Source& source) const {
  return inputs_.root_up && source.seatable() &&
         (HoldsComplete(*source.state, inputs_.root) ||
          BestHolder(*source.state).node == inputs_.root);
}

uint64_t SourceTable::FoldBytes(const Source& source) const {
  return inputs_.spec.range_bytes > 0 ? inputs_.spec.range_bytes : source.state->size_bytes;
}

absl::Status SourceTable::CheckFits(const Source& source) const {
  const ReduceSpec& spec = inputs_.spec;
  const uint64_t bytes = source.state->size_bytes;
  const auto error = [&](const auto&... why) {
    return absl::InvalidArgumentError(absl::StrCat("reduction of ", inputs_.target.hex(),
                                                   ": source ", source.id.hex(), " has ", bytes,
                                                   " bytes, ", why...));
  };
  if (!spec.source_metadata.empty() && source.state->metadata != spec.source_metadata &&
      !DefectActive(Defect::kMetadataNotCompared)) {
    return error("but not the metadata that was asked for");
  }
  if (spec.range_bytes > 0) {
    // Written without a sum, which could overflow for a range near the largest offset.
    if (spec.range_offset <= bytes && spec.range_bytes <= bytes - spec.range_offset) {
      return absl::OkStatus();
    }
    return error("the range [", spec.range_offset, ", ", spec.range_offset + spec.range_bytes,
                 ") is not within");
  }
  if (bytes != inputs_.size_bytes) {
    return error("the first that was placed has ", inputs_.size_bytes);
  }
  if (const absl::Status whole = CheckWhole(spec.elements, bytes); !whole.ok()) {
    return error("no whole number of ", spec.elements.Name(), ": ", whole.message());
  }
  return absl::OkStatus();
}

// ---- seats

void SourceTable::TakeSeat(int index, const SeatId& seat) {
  Source& source = sources_[index];
  if (!DefectActive(Defect::kSpareTakenTwice)) waiting_.erase({source.arrival, index});
  source.seat = seat;
  if (source.slow()) slow_seated_.insert({source.speed, index});
}

void SourceTable::LeaveSeat(int index) {
  Source& source = sources_[index];
  source.seat = SeatId();
  slow_seated_.erase({source.speed, index});
  if (source.state) waiting_.insert({source.arrival, index});
}

void SourceTable::ReserveSeat(int index, const SeatId& seat) {
  sources_[index].reserved_seat = seat;
}

void SourceTable::ClearSeats() {
  CountExamined(sources_.size());
  for (int i = 0; i < size(); ++i) {
    sources_[i].reserved_seat = SeatId();
    LeaveSeat(i);
  }
}

std::string SourceTable::SeatedMetadata() const {
  // Metadata describes a whole object; a range of the object is something else.
  if (inputs_.spec.range_bytes > 0) return "";
  for (const Source& source : sources_) {
    if (source.seat.valid() && source.state && !source.state->metadata.empty()) {
      return source.state->metadata;
    }
  }
  return "";
}

absl::Status SourceTable::CheckInvariants() const {
  int ready = 0;
  int failed = 0;
  ArrivalSet waiting;
  ArrivalSet seatable;
  std::set<std::pair<double, int>> slow_seated;
  for (int i = 0; i < size(); ++i) {
    const Source& source = sources_[i];
    const auto error = [&source](absl::string_view what) {
      return absl::InternalError(absl::StrCat("source ", source.id.hex(), " ", what));
    };
    ready += source.state ? 1 : 0;
    failed += source.failed() ? 1 : 0;
    if (source.failed() && source.state) return error("has failed and is ready");
    if (source.state.has_value() != (source.arrival != 0)) return error("has a wrong arrival");
    if (Find(source.id) != i) return error("is not found");
    if (source.state && !source.seat.valid()) waiting.insert({source.arrival, i});
    if (source.seatable()) seatable.insert({source.arrival, i});
    if (source.slow() && source.seat.valid()) slow_seated.insert({source.speed, i});
  }
  if (ready != ready_ || failed != failed_) return absl::InternalError("sources are miscounted");
  if (waiting != waiting_) return absl::InternalError("wrong sources wait for a seat");
  if (seatable != seatable_) return absl::InternalError("wrong sources are seatable");
  if (slow_seated != slow_seated_) return absl::InternalError("wrong sources are slow");
  return absl::OkStatus();
}

}  // namespace phalanx::directory
