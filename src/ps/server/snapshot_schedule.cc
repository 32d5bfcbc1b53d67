#include "src/ps/server/snapshot_schedule.h"

#include <algorithm>
#include <utility>

#include "src/common/check.h"

namespace phalanx::ps::internal {

// Only ASP can go without clocks: bytes make a snapshot due there.
SnapshotSchedule::SnapshotSchedule(const TableSpec& spec, int workers)
    : every_(spec.snapshot_every),
      bytes_(spec.sync != Sync::kAsp   ? 0
             : spec.snapshot_bytes > 0 ? spec.snapshot_bytes
                                       : kLeastSnapshotBytes),
      in_proportion_(spec.snapshot_bytes == 0) {
  stored_.positions.resize(workers);
}

// Another rise is another occasion after a failure, too.
void SnapshotSchedule::OnMin(uint64_t min) {
  if (min - last_min_ < every_) return;
  wanted_ = true;
  failed_ = false;
}

// A snapshot costs as much as the part has, so with a large one fewer are made.
void SnapshotSchedule::OnPushed(uint64_t bytes, uint64_t part) {
  pushed_ += bytes;
  part_ = part;
  if (bytes_ > 0 && pushed_ >= (in_proportion_ ? std::max(bytes_, part) : bytes_)) wanted_ = true;
}

// The one under way may fail, and the worker asks again then: it is never left without an answer by
// one that was made for another.
void SnapshotSchedule::Ask(int worker, const Position& at, uint64_t first) {
  const Shown& newest = under_way_.has_value() ? *under_way_ : stored_;
  if (newest.number >= first && newest.positions[worker] == at) return;
  wanted_ = true;
  failed_ = false;
}

// Numbers are not used again, also not after a failure: what was written of a failed one must never
// be taken for a later one.
uint64_t SnapshotSchedule::Begin(uint64_t min, std::vector<Position> positions) {
  PHALANX_CHECK(due(), "a snapshot is due");
  wanted_ = false;
  last_min_ = min;
  pushed_ = 0;
  under_way_ = Shown{++last_number_, std::move(positions)};
  return last_number_;
}

// Nothing of it counts before: a server that dies with it under way can restore the one before it.
std::optional<uint64_t> SnapshotSchedule::Stored(uint64_t number) {
  if (!under_way_.has_value() || under_way_->number != number) return std::nullopt;
  // The owner frees that one now, and not before: it was the newest with its copies.
  const uint64_t before = stored_.number;
  stored_ = *std::exchange(under_way_, std::nullopt);
  return before;
}

// Wanted again, but not due before Retry, a rise of m, or a question: a store that is full stays so
// for a while.
void SnapshotSchedule::Failed(uint64_t number) {
  if (!under_way_.has_value() || under_way_->number != number) return;
  under_way_.reset();
  wanted_ = true;
  failed_ = true;
}

// It counts from the snapshot on, as the life before would have.
void SnapshotSchedule::Restored(uint64_t number, uint64_t min, std::vector<Position> positions) {
  last_number_ = number;
  last_min_ = min;
  stored_ = Shown{number, std::move(positions)};
}

}  // namespace phalanx::ps::internal
