// FrameReader: splits a stream of bytes into frames. The stream reads the bytes of segments
// directly into their final place.
//
//   loop:  n = stream.Read(reader.ReadBuffers());  reader.Commit(n)  ──► FrameSink
//
// While a payload is being read, ReadBuffers() also offers the place of the next header, so that
// each segment of a stream costs about one read. Allocates only one control payload, bounded by
// kMaxControlBytes.
//
// Owned by one end of a connection; one loop.
#ifndef PHALANX_NET_FRAME_FRAME_READER_H_
#define PHALANX_NET_FRAME_FRAME_READER_H_

#include <sys/uio.h>

#include <array>
#include <cstddef>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "src/net/frame/frame.h"

namespace phalanx::net {

// Handles the frames. Called from within FrameReader::Commit; must not destroy the reader. An error
// ends the connection: the reader returns it and must not be used after it.
class FrameSink {
 public:
  virtual ~FrameSink() = default;

  // The header of a SEGMENT has arrived and is well-formed. Returns the place of its payload:
  // exactly `header.payload_bytes` bytes, or an empty span to discard the payload.
  virtual absl::StatusOr<absl::Span<char>> PlaceSegment(const FrameHeader& header) = 0;

  // `arrived` bytes of the segment's payload are in place. The last call for a segment has arrived
  // == header.payload_bytes. Not called for a discarded payload.
  virtual absl::Status SegmentArrived(const FrameHeader& header, size_t arrived) = 0;

  // Any other frame, after its payload check. `payload` is valid during the call.
  virtual absl::Status ControlFrame(const FrameHeader& header, absl::string_view payload) = 0;
};

class FrameReader {
 public:
  // `scratch` takes discarded bytes. All readers of a loop can share it, since no code reads it.
  // REQUIRES: sink and scratch outlive the reader; scratch is not empty.
  FrameReader(FrameSink& sink, absl::Span<char> scratch);

  // Returns where to store the next bytes of the stream, in order: one or two places, never empty.
  // Valid until the next call of Commit or Discard.
  absl::Span<const iovec> ReadBuffers();

  // `bytes` bytes were stored in the places of ReadBuffers(). Calls the sink. Returns
  // InvalidArgument for a malformed frame, DataLoss if the check of a control payload does not
  // match, or the error of the sink. REQUIRES: bytes <= the total size of ReadBuffers().
  absl::Status Commit(size_t bytes);

  // Processes `bytes` as if they had been read from the stream.
  absl::Status Feed(absl::string_view bytes);

  // Discards the rest of the current segment, if any: no more of its bytes are stored in its place.
  void Discard();

  // True if no byte of the next frame has arrived.
  bool between_frames() const { return !in_payload_ && header_filled_ == 0; }
  // Returns the number of discarded bytes of segments.
  uint64_t bytes_discarded() const { return bytes_discarded_; }

 private:
  absl::Status CommitPayload(size_t bytes);
  absl::Status CommitHeader(size_t bytes);
  absl::Status BeginFrame();
  absl::Status EndControl();
  size_t rest() const { return header_.payload_bytes - payload_filled_; }

  FrameSink& sink_;
  const absl::Span<char> scratch_;
  FrameHeaderBytes header_bytes_;
  size_t header_filled_ = 0;
  // The frame whose payload is being read.
  FrameHeader header_;
  bool in_payload_ = false;
  // Empty while a payload is discarded.
  absl::Span<char> place_;
  size_t payload_filled_ = 0;
  std::string control_;
  std::array<iovec, 2> buffers_;
  uint64_t bytes_discarded_ = 0;
};

}  // namespace phalanx::net

#endif  // PHALANX_NET_FRAME_FRAME_READER_H_
