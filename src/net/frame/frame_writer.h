// FrameWriter: the queued frames of one end of a connection. Segments are written from their place
// in the object; control frames are copied.
//
// Its owner limits the queue: it queues segments only if the queue is empty, and at most a few
// control frames at a time (kMaxQueuedFrames).
//
// Owned by one end of a connection; one loop.
#ifndef PHALANX_NET_FRAME_FRAME_WRITER_H_
#define PHALANX_NET_FRAME_FRAME_WRITER_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "src/net/frame/frame.h"
#include "src/net/stream/byte_stream.h"

namespace phalanx::net {

class FrameWriter {
 public:
  static constexpr size_t kMaxQueuedFrames = 16;

  // REQUIRES: frames() < kMaxQueuedFrames.
  void Control(FrameType type, uint32_t pull, absl::string_view payload, uint8_t flags = 0);
  // REQUIRES: frames() < kMaxQueuedFrames, payload.size() == header.payload_bytes, and the bytes
  // stay valid until they are written or dropped.
  void Segment(const FrameHeader& header, absl::Span<const char> payload);

  // Writes as much as the stream takes in one write. Returns the number of bytes, or Unavailable if
  // the connection is broken.
  absl::StatusOr<size_t> WriteOnce(ByteStream& stream);

  // Drops the frames of which no byte has been written.
  void DropUnstarted();

  bool empty() const { return frames_.empty(); }
  size_t frames() const { return frames_.size(); }

 private:
  struct Frame {
    FrameHeaderBytes header;
    std::string control;
    absl::Span<const char> payload;  // in `control`, or owned by the caller

    size_t size() const { return header.size() + payload.size(); }
  };

  void Push(const FrameHeader& header, std::string control, absl::Span<const char> payload);
  void Wrote(size_t bytes);

  // A deque does not move its elements when others are added or removed at its ends.
  std::deque<Frame> frames_;
  // Number of bytes of the first frame that have been written.
  size_t written_ = 0;
};

}  // namespace phalanx::net

#endif  // PHALANX_NET_FRAME_FRAME_WRITER_H_
