// The frames of the data plane as values: encoding and decoding of headers and control payloads.
//
// docs/data-plane.md describes the format. A frame is a header of 32 bytes, little-endian, and a
// payload. The payload of a SEGMENT is bytes of the object; the payload of any other type is a
// small packed struct, defined below. Decoding trusts no input: a decoded frame has a known type,
// known flags, a bounded length and, for a SEGMENT, a slice and an offset within the limits of the
// protocol. The receiver of the frame checks that they fit the object.
//
// Pure functions and values; any thread.
#ifndef PHALANX_NET_FRAME_FRAME_H_
#define PHALANX_NET_FRAME_FRAME_H_

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "phalanx/object_id.h"
#include "src/common/ids/ids.h"

namespace phalanx::net {

inline constexpr size_t kFrameHeaderBytes = 32;
// The maximum payload of a SEGMENT.
inline constexpr size_t kMaxSegmentBytes = size_t{1} << 20;
// The maximum payload of any other frame.
inline constexpr size_t kMaxControlBytes = 2048;
inline constexpr size_t kMaxAbortTextBytes = 1024;

enum class FrameType : uint8_t {
  kOpen = 1,     // receiver: requests slices
  kAccept = 2,   // sender: grants; size and slices of the object
  kSegment = 3,  // sender: bytes
  kStarved = 4,  // sender: alive, but has no bytes to send
  kEnded = 5,    // sender: has sent every requested slice
  kAborted = 6,  // sender: rejects or aborts the pull
  kCancel = 7,   // receiver: stop
  kWaiting = 8,  // receiver: alive; answers kStarved
  kLink = 9,     // dialer: this connection becomes a link
};
absl::string_view FrameTypeName(FrameType type);

// Flag of a SEGMENT: payload_check is set.
inline constexpr uint8_t kSegmentChecked = 1;
// Flag of an OPEN (requests checksums) and an ACCEPT (segments have checksums).
inline constexpr uint8_t kWithChecksums = 1;

struct FrameHeader {
  FrameType type = FrameType::kCancel;
  uint8_t flags = 0;
  uint8_t slice = 0;           // SEGMENT only
  uint8_t starved = 0;         // SEGMENT only: EncodeStarvedBefore
  uint32_t pull = 0;           // number of the pull on this connection, from 1
  uint32_t payload_bytes = 0;  // 1..kMaxSegmentBytes, or 0..kMaxControlBytes
  uint64_t offset = 0;         // SEGMENT only: offset in the slice
  uint32_t payload_check = 0;  // every control frame, and a SEGMENT with kSegmentChecked

  friend bool operator==(const FrameHeader&, const FrameHeader&) = default;
};

// The low half of XXH3-64. Detects accidents, not attacks.
uint32_t FrameCheck(absl::string_view bytes);

// How long the sender had nothing to send before a SEGMENT: in units of 16 us, rounded up, so that
// 0 is not at all. The last code stands for this time and all longer ones.
inline constexpr absl::Duration kStarvedUnit = absl::Microseconds(16);
inline constexpr uint8_t kStarvedForLong = 255;
uint8_t EncodeStarvedBefore(absl::Duration time);
// Infinite for kStarvedForLong.
absl::Duration DecodeStarvedBefore(uint8_t code);

using FrameHeaderBytes = std::array<char, kFrameHeaderBytes>;
FrameHeaderBytes EncodeFrameHeader(const FrameHeader& header);
// Returns InvalidArgument for a size other than kFrameHeaderBytes, a wrong magic or check, an
// unknown type or flag, a length or offset out of bounds, or a field that the type does not have.
absl::StatusOr<FrameHeader> DecodeFrameHeader(absl::string_view bytes);

// Returns the header of a control frame with this payload. REQUIRES: payload.size() <=
// kMaxControlBytes.
FrameHeader ControlHeader(FrameType type, uint32_t pull, absl::string_view payload,
                          uint8_t flags = 0);

struct OpenPayload {
  struct Want {
    uint8_t slice = 0;
    uint64_t offset = 0;
    friend bool operator==(const Want&, const Want&) = default;
  };
  NodeKey sender;  // the expected incarnation
  ObjectId object;
  Generation generation;
  // A sender without bytes sends STARVED at least once in this interval. Milliseconds on the wire,
  // 1..15,000.
  absl::Duration sign_of_life;
  std::vector<Want> wants;  // 1..kMaxSlices, ascending slices

  friend bool operator==(const OpenPayload&, const OpenPayload&) = default;
};

struct AcceptPayload {
  Generation generation;
  uint64_t object_bytes = 0;
  uint8_t slices = 1;

  friend bool operator==(const AcceptPayload&, const AcceptPayload&) = default;
};

// The payload of STARVED and ENDED: how long the sender had no bytes to send, over the pull so far.
// Microseconds on the wire.
struct StarvedPayload {
  absl::Duration total;
};

// The payload of LINK, which turns a connection that has carried no pull into a link between the
// two nodes (net/link). Each side numbers its state of the pair (its session, never 0) and the
// connections that it dials (attempts, from 1).
struct LinkPayload {
  uint64_t session = 0;
  // The acceptor's session that the dialer knows; 0 if none.
  uint64_t known_session = 0;
  // The bytes of the acceptor's messages that have arrived in this session.
  uint64_t received = 0;
  uint64_t attempt = 0;

  friend bool operator==(const LinkPayload&, const LinkPayload&) = default;
};

// Each decoder returns InvalidArgument if a field is out of its limits, or if bytes are missing or
// left over.
std::string EncodePayload(const OpenPayload& open);
std::string EncodePayload(const AcceptPayload& accept);
std::string EncodePayload(const StarvedPayload& starved);
std::string EncodePayload(const LinkPayload& link);
// Encodes the code and the text, cut to kMaxAbortTextBytes.
std::string EncodePayload(const absl::Status& reason);
absl::StatusOr<OpenPayload> DecodeOpen(absl::string_view payload);
absl::StatusOr<AcceptPayload> DecodeAccept(absl::string_view payload);
absl::StatusOr<StarvedPayload> DecodeStarved(absl::string_view payload);
absl::StatusOr<LinkPayload> DecodeLink(absl::string_view payload);
// Decodes into `reason`. Unknown codes and OK become kUnknown.
absl::Status DecodeAborted(absl::string_view payload, absl::Status& reason);

}  // namespace phalanx::net

#endif  // PHALANX_NET_FRAME_FRAME_H_
