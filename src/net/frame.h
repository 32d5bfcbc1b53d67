// The frames of the data plane as values: headers and control payloads, to bytes and back.
//
// docs/data-plane.md tells the format in prose. A frame is a header of 32 bytes, little-endian, and
// a payload; for a SEGMENT the payload is the object's bytes, for every other type a small packed
// struct below. Decoding trusts nothing: a frame that decodes has a known type, known flags, a
// bounded length and, for a SEGMENT, a slice and an offset within the protocol's limits. Whether
// they fit the object is for the receiver of the frame to check.
//
// Pure functions and values; any thread.
#ifndef PHALANX_NET_FRAME_H_
#define PHALANX_NET_FRAME_H_

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "phalanx/object_id.h"
#include "src/common/ids.h"

namespace phalanx::net {

inline constexpr size_t kFrameHeaderBytes = 32;
// Of a SEGMENT.
inline constexpr size_t kMaxSegmentBytes = size_t{1} << 20;
// Of every other frame.
inline constexpr size_t kMaxControlBytes = 2048;
inline constexpr size_t kMaxAbortTextBytes = 1024;

enum class FrameType : uint8_t {
  kOpen = 1,     // receiver: what is wanted
  kAccept = 2,   // sender: it is served; size and cut of the object
  kSegment = 3,  // sender: bytes
  kStarved = 4,  // sender: alive, with nothing to send
  kEnded = 5,    // sender: every slice asked for has been sent
  kAborted = 6,  // sender: refused, or broken off
  kCancel = 7,   // receiver: stop
  kWaiting = 8,  // receiver: alive; answers kStarved
};
absl::string_view FrameTypeName(FrameType type);

// Flags of a SEGMENT.
inline constexpr uint8_t kSegmentChecked = 1;  // payload_check is set
inline constexpr uint8_t kSegmentAfterStarved =
    2;  // the first after the sender had nothing to send
// Flag of an OPEN and an ACCEPT: segments are to be, or will be, checked.
inline constexpr uint8_t kWithChecksums = 1;

struct FrameHeader {
  FrameType type = FrameType::kCancel;
  uint8_t flags = 0;
  uint8_t slice = 0;           // SEGMENT only
  uint32_t pull = 0;           // number of the pull on its connection, from 1
  uint32_t payload_bytes = 0;  // 1..kMaxSegmentBytes, or 0..kMaxControlBytes
  uint64_t offset = 0;         // SEGMENT only: in the slice
  uint32_t payload_check = 0;  // every control frame, and a SEGMENT with kSegmentChecked

  friend bool operator==(const FrameHeader&, const FrameHeader&) = default;
};

// Low half of XXH3-64. Finds accidents, not attackers.
uint32_t FrameCheck(absl::string_view bytes);

using FrameHeaderBytes = std::array<char, kFrameHeaderBytes>;
FrameHeaderBytes EncodeFrameHeader(const FrameHeader& header);
// InvalidArgument: another size than kFrameHeaderBytes, wrong magic or check, unknown type or
// flags, a length or an offset out of bounds, a field set that the type does not have.
absl::StatusOr<FrameHeader> DecodeFrameHeader(absl::string_view bytes);

// The header for a control frame with this payload. REQUIRES: payload.size() <= kMaxControlBytes.
FrameHeader ControlHeader(FrameType type, uint32_t pull, absl::string_view payload,
                          uint8_t flags = 0);

struct OpenPayload {
  struct Want {
    uint8_t slice = 0;
    uint64_t offset = 0;
    friend bool operator==(const Want&, const Want&) = default;
  };
  NodeKey sender;  // the life that is meant
  ObjectId object;
  Generation generation;
  // The sender says "starved" at least so often. Milliseconds on the wire, 1..15,000.
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

// Of STARVED and ENDED: how long the sender had nothing to send, over the pull so far. Microseconds
// on the wire.
struct StarvedPayload {
  absl::Duration total;
};

// Each decoder: InvalidArgument when a field is out of its limits or bytes are missing or left
// over.
std::string EncodePayload(const OpenPayload& open);
std::string EncodePayload(const AcceptPayload& accept);
std::string EncodePayload(const StarvedPayload& starved);
// The code and the text, cut to kMaxAbortTextBytes.
std::string EncodePayload(const absl::Status& why);
absl::StatusOr<OpenPayload> DecodeOpen(absl::string_view payload);
absl::StatusOr<AcceptPayload> DecodeAccept(absl::string_view payload);
absl::StatusOr<StarvedPayload> DecodeStarved(absl::string_view payload);
// Into `why`. Codes that this version does not know, and OK, become Unknown.
absl::Status DecodeAborted(absl::string_view payload, absl::Status& why);

}  // namespace phalanx::net

#endif  // PHALANX_NET_FRAME_H_
