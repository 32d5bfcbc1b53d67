// FrameWriter: the frames one end of a connection has decided to send and the stream has not taken
// yet. Segments are written from where they lie; control frames are copied.
//
// Its owner bounds it: segments are queued only while it is empty, and control frames are at most a
// few at a time (kMaxQueuedFrames).
//
// Owned by the end of a connection; one loop.
#ifndef PHALANX_NET_FRAME_WRITER_H_
#define PHALANX_NET_FRAME_WRITER_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "src/net/byte_stream.h"
#include "src/net/frame.h"

namespace phalanx::net {

class FrameWriter {
 public:
  static constexpr size_t kMaxQueuedFrames = 16;

  // REQUIRES: frames() < kMaxQueuedFrames.
  void Control(FrameType type, uint32_t pull, absl::string_view payload, uint8_t flags = 0);
  // REQUIRES: as above, payload.size() == header.payload_bytes, and the bytes stay until they are
  // written or dropped.
  void Segment(const FrameHeader& header, absl::Span<const char> payload);

  // Hands to the stream what it takes in one write; returns how much that was. Unavailable when
  // the connection broke.
  absl::StatusOr<size_t> WriteOnce(ByteStream& stream);

  // Forgets the frames of which nothing has been written.
  void DropUnstarted();

  bool empty() const { return frames_.empty(); }
  size_t frames() const { return frames_.size(); }

 private:
  struct Frame {
    FrameHeaderBytes header;
    std::string control;
    absl::Span<const char> payload;  // of `control`, or outside

    size_t size() const { return header.size() + payload.size(); }
  };

  void Push(const FrameHeader& header, std::string control, absl::Span<const char> payload);
  void Wrote(size_t bytes);

  // Elements of a deque stay where they are while others come and go at its ends.
  std::deque<Frame> frames_;
  // Bytes of the first frame that are written.
  size_t written_ = 0;
};

}  // namespace phalanx::net

#endif  // PHALANX_NET_FRAME_WRITER_H_
