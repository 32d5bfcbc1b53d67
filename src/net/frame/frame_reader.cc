#include "src/net/frame/frame_reader.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "src/common/check.h"
#include "src/common/status_macros.h"

namespace phalanx::net {

FrameReader::FrameReader(FrameSink& sink, absl::Span<char> scratch)
    : sink_(sink), scratch_(scratch) {}

absl::Span<const iovec> FrameReader::ReadBuffers() {
  const iovec header = {header_bytes_.data() + header_filled_, kFrameHeaderBytes - header_filled_};
  if (!in_payload_) {
    buffers_[0] = header;
    return absl::MakeConstSpan(buffers_.data(), 1);
  }
  if (!place_.empty()) {
    // The next header follows the payload, so one read usually completes both.
    buffers_ = {iovec{place_.data() + payload_filled_, rest()}, header};
    return buffers_;
  }
  buffers_ = {iovec{scratch_.data(), std::min(rest(), scratch_.size())}, header};
  // The header can only follow if the rest of the payload fits into the scratch block.
  return absl::MakeConstSpan(buffers_.data(), rest() <= scratch_.size() ? 2 : 1);
}

absl::Status FrameReader::Commit(size_t bytes) {
  // One read can end a payload and begin the next header, since ReadBuffers offers both places.
  if (in_payload_) {
    const size_t of_payload = std::min(bytes, rest());
    PHALANX_RETURN_IF_ERROR(CommitPayload(of_payload));
    bytes -= of_payload;
  }
  if (bytes == 0) return absl::OkStatus();
  return CommitHeader(bytes);
}

absl::Status FrameReader::Feed(absl::string_view bytes) {
  while (!bytes.empty()) {
    // Asks for the places in every round, since Commit can change them.
    size_t taken = 0;
    for (const iovec& place : ReadBuffers()) {
      const size_t part = std::min(place.iov_len, bytes.size() - taken);
      std::memcpy(place.iov_base, bytes.data() + taken, part);
      taken += part;
    }
    bytes.remove_prefix(taken);
    PHALANX_RETURN_IF_ERROR(Commit(taken));
  }
  return absl::OkStatus();
}

void FrameReader::Discard() {
  // Control payloads are still needed, and their place belongs to the reader.
  if (in_payload_ && header_.type == FrameType::kSegment) place_ = {};
}

absl::Status FrameReader::CommitPayload(size_t bytes) {
  if (bytes == 0) return absl::OkStatus();
  payload_filled_ += bytes;
  const bool whole = rest() == 0;
  // Before the sink is called, which can call Discard.
  if (whole) in_payload_ = false;
  if (header_.type != FrameType::kSegment) return whole ? EndControl() : absl::OkStatus();
  if (!place_.empty()) return sink_.SegmentArrived(header_, payload_filled_);
  bytes_discarded_ += bytes;
  return absl::OkStatus();
}

absl::Status FrameReader::CommitHeader(size_t bytes) {
  header_filled_ += bytes;
  PHALANX_CHECK(header_filled_ <= kFrameHeaderBytes, "at most the wanted bytes were read");
  return header_filled_ == kFrameHeaderBytes ? BeginFrame() : absl::OkStatus();
}

absl::Status FrameReader::BeginFrame() {
  PHALANX_ASSIGN_OR_RETURN(
      header_, DecodeFrameHeader(absl::string_view(header_bytes_.data(), kFrameHeaderBytes)));
  header_filled_ = 0;
  payload_filled_ = 0;
  place_ = {};
  in_payload_ = header_.payload_bytes > 0;
  if (header_.type == FrameType::kSegment) {
    PHALANX_ASSIGN_OR_RETURN(place_, sink_.PlaceSegment(header_));
    // ReadBuffers takes the length from the header, so the stream would write past a shorter place.
    PHALANX_CHECK(place_.empty() || place_.size() == header_.payload_bytes,
                  "a segment's place is as large as the segment");
    return absl::OkStatus();
  }
  // Bounded by kMaxControlBytes, which the decoder of the header has checked.
  control_.resize(header_.payload_bytes);
  place_ = absl::MakeSpan(control_.data(), control_.size());
  // CANCEL and WAITING have no payload: they end with their header.
  return in_payload_ ? absl::OkStatus() : EndControl();
}

absl::Status FrameReader::EndControl() {
  if (FrameCheck(control_) != header_.payload_check) {
    return absl::DataLossError(
        absl::StrCat("checksum mismatch in the payload of ", FrameTypeName(header_.type)));
  }
  return sink_.ControlFrame(header_, control_);
}

}  // namespace phalanx::net
