// The frames of a link as values: headers, and the bodies of WELCOME and END.
//
// docs/data-plane.md describes the format. A frame is a header of 32 bytes, little-endian, a body
// of at most kMaxLinkBodyBytes, and, in a MESSAGE, a payload. The body of a MESSAGE is the header
// that the service gave it. Decoding trusts no input.
//
// Pure functions and values; any thread.
#ifndef PHALANX_NET_LINK_LINK_FRAME_H_
#define PHALANX_NET_LINK_LINK_FRAME_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace phalanx::net {

inline constexpr size_t kLinkHeaderBytes = 32;
inline constexpr size_t kMaxLinkBodyBytes = 512;
inline constexpr size_t kMaxLinkPayloadBytes = size_t{16} << 20;

enum class LinkFrameType : uint8_t {
  kWelcome = 1,  // acceptor: answers LINK; the first frame of a connection
  kMessage = 2,
  kAck = 3,  // nothing but the count in its header
  kEnd = 4,  // the sender has given the link up; the last frame
};

struct LinkHeader {
  LinkFrameType type = LinkFrameType::kAck;
  uint8_t service = 0;         // MESSAGE: 1..kLinkServices, else 0
  uint16_t body_bytes = 0;     // 0 in an ACK
  uint32_t payload_bytes = 0;  // MESSAGE only
  uint32_t body_check = 0;
  // The bytes of the other side's messages that have arrived at the sender of this frame.
  uint64_t received = 0;

  friend bool operator==(const LinkHeader&, const LinkHeader&) = default;
};

using LinkHeaderBytes = std::array<char, kLinkHeaderBytes>;
LinkHeaderBytes EncodeLinkHeader(const LinkHeader& header);
// Returns InvalidArgument for a size other than kLinkHeaderBytes, a wrong magic or check, an
// unknown type or service, a length out of bounds, or a field that the type does not have.
absl::StatusOr<LinkHeader> DecodeLinkHeader(absl::string_view bytes);

enum class LinkVerdict : uint8_t {
  kAccepted = 1,   // the link goes on over this connection
  kBusy = 2,       // another connection is being made or is newer; dial again if none comes
  kForgotten = 3,  // the acceptor does not know the session that the dialer knows
  kRefused = 4,    // the acceptor has no room; dial again later
};

struct WelcomeBody {
  LinkVerdict verdict = LinkVerdict::kRefused;
  // The acceptor's session; 0 unless accepted.
  uint64_t session = 0;
  // Connections that the acceptor has dialed up to this one are abandoned.
  uint64_t attempts = 0;

  friend bool operator==(const WelcomeBody&, const WelcomeBody&) = default;
};

std::string EncodeBody(const WelcomeBody& welcome);
absl::StatusOr<WelcomeBody> DecodeWelcome(absl::string_view body);
// The body of END is the code and the text of a status; the text is cut to fit.
std::string EncodeBody(const absl::Status& why);
// Decodes into `why`. OK and unknown codes become kUnknown.
absl::Status DecodeEnd(absl::string_view body, absl::Status& why);

// Returns a whole frame without a payload. REQUIRES: body.size() <= kMaxLinkBodyBytes.
std::string LinkFrame(LinkFrameType type, uint64_t received, absl::string_view body);

}  // namespace phalanx::net

#endif  // PHALANX_NET_LINK_LINK_FRAME_H_
