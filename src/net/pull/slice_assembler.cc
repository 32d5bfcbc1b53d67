#include "src/net/pull/slice_assembler.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "src/common/check.h"
#include "src/common/defects.h"
#include "src/common/status_macros.h"

namespace phalanx::net {

SliceAssembler::SliceAssembler(std::shared_ptr<TransferBuffer> into, uint64_t slices,
                               bool checksums, DataPlaneCounters& counters)
    : into_(std::move(into)), slices_(slices), checksums_(checksums), counters_(counters) {}

std::vector<OpenPayload::Want> SliceAssembler::Begin() {
  std::vector<OpenPayload::Want> wants;
  for (int i = 0; i < layout().slices; ++i) {
    uint64_t& cursor = cursor_[static_cast<size_t>(i)];
    // An earlier pull can have filled a part of the slice, so this one resumes at its watermark.
    cursor = into_->watermark(i);
    // A full slice is not requested: the sender would have nothing to send for it.
    if (!Requested(i) || cursor == layout().Size(i)) continue;
    if (DefectActive(Defect::kResumeOneByteLate) && cursor > 0) ++cursor;
    wants.push_back({static_cast<uint8_t>(i), cursor});
    bytes_missing_ += layout().Size(i) - cursor;
  }
  PHALANX_CHECK(!wants.empty(), "a pull that has everything is not started");
  return wants;
}

absl::StatusOr<absl::Span<char>> SliceAssembler::Place(const FrameHeader& header) {
  PHALANX_RETURN_IF_ERROR(CheckFits(header));
  // Each Publish would be ignored, so more bytes are of no use.
  if (into_->closed()) return absl::AbortedError("the object was closed on this node");
  place_ = into_->slice(header.slice).subspan(header.offset, header.payload_bytes);
  return place_;
}

absl::Status SliceAssembler::CheckFits(const FrameHeader& header) const {
  if (header.slice >= layout().slices || !Requested(header.slice)) {
    return absl::InvalidArgumentError(
        absl::StrCat("a segment of slice ", header.slice, ", which was not requested"));
  }
  // Invariant 1.
  if (header.offset != cursor_[header.slice]) {
    return absl::InvalidArgumentError(
        absl::StrFormat("a segment of slice %d at %d, not at the watermark %d", header.slice,
                        header.offset, cursor_[header.slice]));
  }
  // The difference is not negative: the offset is the cursor, which is within the slice.
  if (header.payload_bytes > layout().Size(header.slice) - header.offset) {
    return absl::InvalidArgumentError(
        absl::StrCat("a segment beyond the end of slice ", header.slice));
  }
  if (checksums_ && (header.flags & kSegmentChecked) == 0) {
    return absl::InvalidArgumentError("a segment without the requested checksum");
  }
  return absl::OkStatus();
}

absl::Status SliceAssembler::Arrived(const FrameHeader& header, size_t arrived) {
  const bool checked = (header.flags & kSegmentChecked) != 0;
  // Published at once, so that a relay sends bytes on before their segment is complete.
  if (!checked || DefectActive(Defect::kWatermarkBeforeCheck)) {
    Publish(header, header.offset + arrived);
  }
  // The checksum covers the whole payload, so a part of it cannot be published.
  if (!checked || arrived < header.payload_bytes) return absl::OkStatus();
  PHALANX_RETURN_IF_ERROR(VerifyChecksum(header));
  Publish(header, header.offset + arrived);
  return absl::OkStatus();
}

absl::Status SliceAssembler::VerifyChecksum(const FrameHeader& header) const {
  if (FrameCheck({place_.data(), place_.size()}) == header.payload_check) return absl::OkStatus();
  // The watermark stays below the segment. Another pull can overwrite its bytes.
  DataPlaneCounters::Add(counters_.bytes_wasted, header.payload_bytes);
  return absl::DataLossError(absl::StrFormat("checksum mismatch in slice %d at [%d, %d)",
                                             header.slice, header.offset,
                                             header.offset + header.payload_bytes));
}

void SliceAssembler::Publish(const FrameHeader& header, uint64_t to) {
  const uint64_t bytes = to - std::exchange(cursor_[header.slice], to);
  bytes_missing_ -= bytes;
  bytes_published_ += bytes;
  DataPlaneCounters::Add(counters_.bytes_received, bytes);
  into_->Publish(header.slice, to);
}

bool SliceAssembler::BufferHasAll() const {
  for (int i = 0; i < layout().slices; ++i) {
    if (Requested(i) && into_->watermark(i) < layout().Size(i)) return false;
  }
  return true;
}

}  // namespace phalanx::net
