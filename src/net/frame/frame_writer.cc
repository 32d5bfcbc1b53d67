#include "src/net/frame/frame_writer.h"

#include <array>
#include <utility>

#include "src/common/check.h"
#include "src/common/status_macros.h"

namespace phalanx::net {
namespace {

// A list of places to write from, without their first `skip` bytes.
class Gather {
 public:
  explicit Gather(size_t skip) : skip_(skip) {}

  void Add(const char* data, size_t size) {
    const size_t skipped = std::min(skip_, size);
    skip_ -= skipped;
    if (size == skipped) return;
    parts_[count_++] = {const_cast<char*>(data) + skipped, size - skipped};
  }
  absl::Span<const iovec> parts() const { return absl::MakeConstSpan(parts_.data(), count_); }

 private:
  size_t skip_;
  size_t count_ = 0;
  // A header and a payload for each frame.
  std::array<iovec, 2 * FrameWriter::kMaxQueuedFrames> parts_;
};

}  // namespace

void FrameWriter::Control(FrameType type, uint32_t pull, absl::string_view payload, uint8_t flags) {
  Push(ControlHeader(type, pull, payload, flags), std::string(payload), {});
}

void FrameWriter::Segment(const FrameHeader& header, absl::Span<const char> payload) {
  PHALANX_CHECK(payload.size() == header.payload_bytes, "a segment has the length in its header");
  Push(header, std::string(), payload);
}

void FrameWriter::Push(const FrameHeader& header, std::string control,
                       absl::Span<const char> payload) {
  PHALANX_CHECK(frames_.size() < kMaxQueuedFrames, "the writer's queue is bounded by its owner");
  frames_.push_back({EncodeFrameHeader(header), std::move(control), payload});
  Frame& frame = frames_.back();
  // Set after the frame is in the deque: a moved string can have another address.
  if (!frame.control.empty()) frame.payload = frame.control;
}

absl::StatusOr<size_t> FrameWriter::WriteOnce(ByteStream& stream) {
  if (frames_.empty()) return 0;
  // One call for all frames: a small object costs one write.
  Gather gather(written_);
  for (const Frame& frame : frames_) {
    gather.Add(frame.header.data(), frame.header.size());
    gather.Add(frame.payload.data(), frame.payload.size());
  }
  PHALANX_ASSIGN_OR_RETURN(const size_t taken, stream.Write(gather.parts()));
  Wrote(taken);
  return taken;
}

void FrameWriter::Wrote(size_t bytes) {
  written_ += bytes;
  // The bytes of one write can end several frames and begin another, which stays the first.
  while (!frames_.empty() && written_ >= frames_.front().size()) {
    written_ -= frames_.front().size();
    frames_.pop_front();
  }
}

void FrameWriter::DropUnstarted() {
  // The receiver needs the rest of a frame whose header it has.
  const size_t started = written_ > 0 ? 1 : 0;
  while (frames_.size() > started) frames_.pop_back();
}

}  // namespace phalanx::net
