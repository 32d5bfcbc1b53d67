#include "src/net/link/link_frame.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "src/common/check.h"
#include "src/common/io/wire.h"
#include "src/common/status_macros.h"
#include "src/net/frame/frame.h"
#include "src/net/link/link_service.h"

namespace phalanx::net {
namespace {

// The bytes "PXL1".
constexpr uint32_t kLinkMagic = 0x314c5850;
// The last field is the check of the fields before it.
constexpr size_t kCheckedBytes = kLinkHeaderBytes - sizeof(uint32_t);
// The code and the length of the text precede it.
constexpr size_t kMaxEndTextBytes = kMaxLinkBodyBytes - 2 * sizeof(uint32_t);

absl::Status Malformed(absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat("malformed frame of a link: ", what));
}

absl::Status CheckHeader(const LinkHeader& header) {
  if (header.body_bytes > kMaxLinkBodyBytes) {
    return Malformed(absl::StrCat("a body of ", header.body_bytes, " bytes"));
  }
  if (header.type == LinkFrameType::kMessage) {
    if (header.service < 1 || header.service > kLinkServices) {
      return Malformed(absl::StrCat("service ", header.service));
    }
    if (header.payload_bytes > kMaxLinkPayloadBytes) {
      return Malformed(absl::StrCat("a payload of ", header.payload_bytes, " bytes"));
    }
    return absl::OkStatus();
  }
  // The inbox reads payloads of messages only: it would take the bytes of this one for frames.
  if (header.service != 0 || header.payload_bytes != 0) return Malformed("no message");
  if (header.type == LinkFrameType::kAck && header.body_bytes != 0) return Malformed("a long ACK");
  return absl::OkStatus();
}

}  // namespace

LinkHeaderBytes EncodeLinkHeader(const LinkHeader& header) {
  std::string packed;
  packed.reserve(kLinkHeaderBytes);
  ByteWriter out(packed);
  out.U32(kLinkMagic);
  out.U8(static_cast<uint8_t>(header.type));
  out.U8(header.service);
  out.U16(header.body_bytes);
  out.U32(header.payload_bytes);
  out.U32(header.body_check);
  out.U64(header.received);
  // Reserved: a receiver rejects any other value, so that a later version can use the bytes.
  out.U32(0);
  out.U32(FrameCheck(absl::string_view(packed.data(), kCheckedBytes)));
  LinkHeaderBytes bytes;
  std::copy(packed.begin(), packed.end(), bytes.begin());
  return bytes;
}

absl::StatusOr<LinkHeader> DecodeLinkHeader(absl::string_view bytes) {
  if (bytes.size() != kLinkHeaderBytes) return Malformed("a header of the wrong size");
  ByteReader in(bytes);
  LinkHeader header;
  const uint32_t magic = in.U32();
  const uint8_t type = in.U8();
  header.service = in.U8();
  header.body_bytes = in.U16();
  header.payload_bytes = in.U32();
  header.body_check = in.U32();
  header.received = in.U64();
  const uint32_t reserved = in.U32();
  const uint32_t check = in.U32();
  if (magic != kLinkMagic) return Malformed(absl::StrFormat("magic %08x", magic));
  // The check precedes the other fields, so that a damaged length is never used.
  if (check != FrameCheck(bytes.substr(0, kCheckedBytes))) return Malformed("header check");
  if (type < static_cast<uint8_t>(LinkFrameType::kWelcome) ||
      type > static_cast<uint8_t>(LinkFrameType::kEnd)) {
    return Malformed(absl::StrCat("type ", type));
  }
  if (reserved != 0) return Malformed("reserved bytes are set");
  header.type = static_cast<LinkFrameType>(type);
  PHALANX_RETURN_IF_ERROR(CheckHeader(header));
  return header;
}

std::string EncodeBody(const WelcomeBody& welcome) {
  std::string packed;
  ByteWriter out(packed);
  out.U8(static_cast<uint8_t>(welcome.verdict));
  out.U64(welcome.session);
  out.U64(welcome.attempts);
  return packed;
}

absl::StatusOr<WelcomeBody> DecodeWelcome(absl::string_view body) {
  ByteReader in(body);
  WelcomeBody welcome;
  const uint8_t verdict = in.U8();
  welcome.session = in.U64();
  welcome.attempts = in.U64();
  if (verdict < static_cast<uint8_t>(LinkVerdict::kAccepted) ||
      verdict > static_cast<uint8_t>(LinkVerdict::kRefused)) {
    in.Fail("unknown verdict");
  }
  welcome.verdict = static_cast<LinkVerdict>(verdict);
  if ((welcome.session != 0) != (welcome.verdict == LinkVerdict::kAccepted)) {
    in.Fail("a session without a link, or a link without a session");
  }
  PHALANX_RETURN_IF_ERROR(in.Finish());
  return welcome;
}

std::string EncodeBody(const absl::Status& why) {
  std::string packed;
  ByteWriter out(packed);
  out.U32(static_cast<uint32_t>(why.code()));
  // The text is for people, so a long one is cut.
  out.Bytes(why.message().substr(0, kMaxEndTextBytes));
  return packed;
}

absl::Status DecodeEnd(absl::string_view body, absl::Status& why) {
  ByteReader in(body);
  const uint32_t code = in.U32();
  const absl::string_view text = in.Bytes(kMaxEndTextBytes);
  PHALANX_RETURN_IF_ERROR(in.Finish());
  // A later version can add codes. OK would hide the loss.
  const bool known = code > 0 && code <= static_cast<uint32_t>(absl::StatusCode::kUnauthenticated);
  why =
      absl::Status(known ? static_cast<absl::StatusCode>(code) : absl::StatusCode::kUnknown, text);
  return absl::OkStatus();
}

std::string LinkFrame(LinkFrameType type, uint64_t received, absl::string_view body) {
  PHALANX_CHECK(body.size() <= kMaxLinkBodyBytes, "bodies are small");
  LinkHeader header;
  header.type = type;
  header.body_bytes = static_cast<uint16_t>(body.size());
  header.body_check = FrameCheck(body);
  header.received = received;
  const LinkHeaderBytes bytes = EncodeLinkHeader(header);
  return absl::StrCat(absl::string_view(bytes.data(), bytes.size()), body);
}

}  // namespace phalanx::net
