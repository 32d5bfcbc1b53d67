// FrameReader: cuts a stream of bytes into frames, and has the bytes of segments read straight into
// their final place.
//
//   loop:  n = stream.Read(reader.Want());  reader.Took(n)  ──► FrameSink
//
// While a payload is being read, Want() also offers the place of the next header, so that a stream
// of segments costs about one read each. Allocates nothing but one control payload, bounded by
// kMaxControlBytes.
//
// Owned by the end of a connection; one loop.
#ifndef PHALANX_NET_FRAME_READER_H_
#define PHALANX_NET_FRAME_READER_H_

#include <sys/uio.h>

#include <array>
#include <cstddef>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "src/net/frame.h"

namespace phalanx::net {

// What the frames are for. Called from within FrameReader::Took; must not destroy the reader. An
// error ends the connection: the reader returns it and is not to be used any more.
class FrameSink {
 public:
  virtual ~FrameSink() = default;

  // A SEGMENT's header has come and is well-formed. Returns where its payload goes: exactly
  // `header.payload_bytes` bytes, or an empty span to throw it away.
  virtual absl::StatusOr<absl::Span<char>> PlaceSegment(const FrameHeader& header) = 0;

  // So many bytes of the segment's payload are in place by now; the last call for a segment has
  // arrived == header.payload_bytes. Not called for a payload that is thrown away.
  virtual absl::Status SegmentArrived(const FrameHeader& header, size_t arrived) = 0;

  // Any other frame; its payload check was right. `payload` is valid during the call.
  virtual absl::Status ControlFrame(const FrameHeader& header, absl::string_view payload) = 0;
};

class FrameReader {
 public:
  // `scratch` takes what is thrown away; it may be shared by all readers of a loop, since nobody
  // looks at it. REQUIRES: sink and scratch outlive the reader; scratch is not empty.
  FrameReader(FrameSink& sink, absl::Span<char> scratch);

  // Where the next bytes of the stream are to be stored, in order: one or two places, never empty.
  // Valid until the next call of Took or Discard.
  absl::Span<const iovec> Want();

  // That many bytes were stored there. Calls the sink. InvalidArgument: a malformed frame.
  // DataLoss: the check of a control payload did not match. Else the sink's error. REQUIRES: bytes
  // <= the sizes of Want() together.
  absl::Status Took(size_t bytes);

  // As if `bytes` had been read from the stream.
  absl::Status Feed(absl::string_view bytes);

  // From now on nothing more of the segment that is being read, if any, is stored in its place.
  void Discard();

  // True between frames, when not a byte of the next one has come.
  bool between_frames() const { return !in_payload_ && header_filled_ == 0; }
  // Bytes of segments that went to scratch.
  uint64_t bytes_discarded() const { return bytes_discarded_; }

 private:
  absl::Status TookPayload(size_t bytes);
  absl::Status TookHeader(size_t bytes);
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
  // Empty while a payload is thrown away.
  absl::Span<char> place_;
  size_t payload_filled_ = 0;
  std::string control_;
  std::array<iovec, 2> want_;
  uint64_t bytes_discarded_ = 0;
};

}  // namespace phalanx::net

#endif  // PHALANX_NET_FRAME_READER_H_
