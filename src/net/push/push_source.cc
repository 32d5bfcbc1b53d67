#include "src/net/push/push_source.h"

#include <algorithm>

#include "absl/strings/str_format.h"
#include "src/common/defects.h"

namespace phalanx::net {

absl::Status PushSource::Begin(ServeGrant grant, absl::Span<const OpenPayload::Want> wants,
                               bool checksums) {
  grant_ = std::move(grant);
  checksums_ = checksums;
  lanes_.clear();
  starved_since_.reset();
  starved_total_ = absl::ZeroDuration();
  starved_before_ = absl::ZeroDuration();
  const SliceLayout& layout = buffer().layout();
  // The frame was checked against the limits of the protocol, but the receiver can be wrong about
  // the object. The whole request is checked before any of it is served.
  for (const OpenPayload::Want& want : wants) {
    if (want.slice >= layout.slices || want.offset > layout.Size(want.slice)) {
      return absl::FailedPreconditionError(
          absl::StrFormat("requested slice %d from %d, of an object of %d bytes in %d slices",
                          want.slice, want.offset, layout.object_bytes, layout.slices));
    }
  }
  for (const OpenPayload::Want& want : wants) {
    lanes_.push_back({want.slice, want.offset, layout.Size(want.slice)});
  }
  // The first slice has the first turn.
  selected_ = lanes_.size() - 1;
  return absl::OkStatus();
}

ServeGrant PushSource::Release() {
  // Before the grant goes, since the buffer holds the subscription.
  Unsubscribe();
  lanes_.clear();
  return std::exchange(grant_, {});
}

bool PushSource::all_sent() const {
  return std::all_of(lanes_.begin(), lanes_.end(),
                     [](const Lane& lane) { return lane.cursor == lane.end; });
}

uint64_t PushSource::SelectSlice(Instant now) {
  for (size_t i = 0; i < lanes_.size(); ++i) {
    selected_ = (selected_ + 1) % lanes_.size();
    const Lane& lane = lanes_[selected_];
    const uint64_t watermark = buffer().watermark(lane.slice);
    // The receiver can be ahead of this node in a slice: this node serves it only from there on.
    if (watermark <= lane.cursor) continue;
    EndStarvation(now);
    return watermark - lane.cursor;
  }
  return 0;
}

PushSource::Segment PushSource::Cut(size_t bytes) {
  Lane& lane = lanes_[selected_];
  Segment segment;
  segment.payload = buffer().slice(lane.slice).subspan(lane.cursor, bytes);
  if (DefectActive(Defect::kWrongSliceOffset) && lane.slice > 0) {
    segment.payload = buffer().slice(lane.slice - 1).subspan(0, bytes);
  }
  // The header gives the right offset even under the defect, so that only the bytes are wrong.
  FrameHeader& header = segment.header;
  header.type = FrameType::kSegment;
  header.slice = static_cast<uint8_t>(lane.slice);
  header.offset = lane.cursor;
  header.payload_bytes = static_cast<uint32_t>(segment.payload.size());
  if (checksums_) {
    header.flags |= kSegmentChecked;
    header.payload_check = FrameCheck({segment.payload.data(), segment.payload.size()});
  }
  // The receiver excludes the wait before this segment from the rate of the link.
  header.starved = EncodeStarvedBefore(std::exchange(starved_before_, absl::ZeroDuration()));
  lane.cursor += segment.payload.size();
  return segment;
}

void PushSource::Subscribe(Executor& executor, Task wake) {
  seen_.assign(static_cast<size_t>(buffer().layout().slices), 0);
  uint64_t slices = 0;
  for (const Lane& lane : lanes_) {
    if (lane.cursor == lane.end) continue;
    slices |= uint64_t{1} << lane.slice;
    // Wakes as soon as there is a byte to send in any unfinished lane.
    seen_[static_cast<size_t>(lane.slice)] = lane.cursor;
  }
  subscription_ = grant_.from->Subscribe(slices, seen_, executor, std::move(wake));
}

void PushSource::Unsubscribe() {
  if (subscription_ != 0) grant_.from->Unsubscribe(std::exchange(subscription_, 0));
}

void PushSource::StopWaiting(Instant now) {
  Unsubscribe();
  EndStarvation(now);
}

void PushSource::EndStarvation(Instant now) {
  // Called for every segment; only the first one after a wait has a time to add.
  if (!starved()) return;
  starved_before_ += now - *starved_since_;
  starved_total_ += now - *starved_since_;
  starved_since_.reset();
}

absl::Duration PushSource::StarvedTime(Instant now) const {
  return starved() ? starved_total_ + (now - *starved_since_) : starved_total_;
}

}  // namespace phalanx::net
