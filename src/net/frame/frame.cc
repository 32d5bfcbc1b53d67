#include "src/net/frame/frame.h"

#include <xxhash.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "src/common/check.h"
#include "src/common/io/wire.h"

namespace phalanx::net {
namespace {

// The bytes "PXF1".
constexpr uint32_t kFrameMagic = 0x31465850;
// The last field is the check of the fields before it.
constexpr size_t kCheckedHeaderBytes = kFrameHeaderBytes - sizeof(uint32_t);
constexpr int64_t kMaxSignOfLifeMillis = 15'000;

// Unknown flags are rejected, since this version could not do what they request.
uint8_t KnownFlags(FrameType type) {
  switch (type) {
    case FrameType::kOpen:
    case FrameType::kAccept:
      return kWithChecksums;
    case FrameType::kSegment:
      return kSegmentChecked;
    default:
      return 0;
  }
}

// Relies on FrameType having no gaps.
bool KnownType(uint8_t type) {
  return type >= static_cast<uint8_t>(FrameType::kOpen) &&
         type <= static_cast<uint8_t>(FrameType::kLink);
}

absl::Status Malformed(absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat("malformed frame: ", what));
}

absl::Status CheckSegmentHeader(const FrameHeader& header) {
  if (header.slice >= kMaxSlices) return Malformed(absl::StrCat("slice ", header.slice));
  // FrameReader reports a segment as its payload arrives, so an empty one would pass unnoticed.
  if (header.payload_bytes == 0 || header.payload_bytes > kMaxSegmentBytes) {
    return Malformed(absl::StrCat("a segment of ", header.payload_bytes, " bytes"));
  }
  // With both bounds, the sum of offset and payload_bytes cannot overflow at the receiver.
  if (header.offset > kMaxObjectBytes) {
    return Malformed(absl::StrCat("a segment at offset ", header.offset));
  }
  // Every field has one valid encoding, so that a decoded frame encodes to the same bytes (the
  // fuzzer verifies this).
  if ((header.flags & kSegmentChecked) == 0 && header.payload_check != 0) {
    return Malformed("a payload check without its flag");
  }
  return absl::OkStatus();
}

absl::Status CheckHeader(const FrameHeader& header) {
  if ((header.flags & ~KnownFlags(header.type)) != 0) {
    return Malformed(absl::StrFormat("flags %#x of %s", header.flags, FrameTypeName(header.type)));
  }
  // Numbers start at 1: an end of a connection that has opened no pull is at number 0.
  if (header.pull == 0) return Malformed("pull 0");
  if (header.type == FrameType::kSegment) return CheckSegmentHeader(header);
  // FrameReader allocates this many bytes for the payload.
  if (header.payload_bytes > kMaxControlBytes) {
    return Malformed(absl::StrCat(FrameTypeName(header.type), " of ", header.payload_bytes,
                                  " bytes, more than ", kMaxControlBytes));
  }
  if (header.slice != 0 || header.starved != 0 || header.offset != 0) {
    return Malformed(absl::StrCat(FrameTypeName(header.type), " with a field of a segment"));
  }
  return absl::OkStatus();
}

void Write(ByteWriter& out, const NodeKey& key) {
  out.U64(key.node);
  out.U64(key.incarnation);
}

void Write(ByteWriter& out, const Generation& generation) {
  Write(out, generation.creator);
  out.U64(generation.sequence);
}

NodeKey ReadNodeKey(ByteReader& in) {
  NodeKey key;
  key.node = in.U64();
  key.incarnation = in.U64();
  return key;
}

Generation ReadGeneration(ByteReader& in) {
  Generation generation;
  generation.creator = ReadNodeKey(in);
  generation.sequence = in.U64();
  // Sequence 0 means that there is no generation.
  if (!generation.valid()) in.Fail("generation without a sequence number");
  return generation;
}

OpenPayload::Want ReadWant(ByteReader& in, int lowest_slice) {
  OpenPayload::Want want;
  want.slice = in.U8();
  want.offset = in.U64();
  // Ascending slices: no slice can be requested twice.
  if (want.slice < lowest_slice || want.slice >= kMaxSlices) in.Fail("slices out of order");
  if (want.offset > kMaxObjectBytes) in.Fail("offset too large");
  return want;
}

}  // namespace

absl::string_view FrameTypeName(FrameType type) {
  switch (type) {
    case FrameType::kOpen:
      return "OPEN";
    case FrameType::kAccept:
      return "ACCEPT";
    case FrameType::kSegment:
      return "SEGMENT";
    case FrameType::kStarved:
      return "STARVED";
    case FrameType::kEnded:
      return "ENDED";
    case FrameType::kAborted:
      return "ABORTED";
    case FrameType::kCancel:
      return "CANCEL";
    case FrameType::kWaiting:
      return "WAITING";
    case FrameType::kLink:
      return "LINK";
  }
  return "UNKNOWN";
}

uint32_t FrameCheck(absl::string_view bytes) {
  return static_cast<uint32_t>(XXH3_64bits(bytes.data(), bytes.size()));
}

uint8_t EncodeStarvedBefore(absl::Duration time) {
  const int64_t units = absl::Ceil(time, kStarvedUnit) / kStarvedUnit;
  return static_cast<uint8_t>(std::min<int64_t>(units, kStarvedForLong));
}

absl::Duration DecodeStarvedBefore(uint8_t code) {
  return code == kStarvedForLong ? absl::InfiniteDuration() : code * kStarvedUnit;
}

FrameHeaderBytes EncodeFrameHeader(const FrameHeader& header) {
  std::string packed;
  packed.reserve(kFrameHeaderBytes);
  ByteWriter out(packed);
  out.U32(kFrameMagic);
  out.U8(static_cast<uint8_t>(header.type));
  out.U8(header.flags);
  out.U8(header.slice);
  out.U8(header.starved);
  out.U32(header.pull);
  out.U32(header.payload_bytes);
  out.U64(header.offset);
  out.U32(header.payload_check);
  out.U32(FrameCheck(absl::string_view(packed.data(), kCheckedHeaderBytes)));
  FrameHeaderBytes bytes;
  std::copy(packed.begin(), packed.end(), bytes.begin());
  return bytes;
}

absl::StatusOr<FrameHeader> DecodeFrameHeader(absl::string_view bytes) {
  if (bytes.size() != kFrameHeaderBytes) return Malformed("a header of the wrong size");
  ByteReader in(bytes);
  FrameHeader header;
  const uint32_t magic = in.U32();
  const uint8_t type = in.U8();
  header.flags = in.U8();
  header.slice = in.U8();
  header.starved = in.U8();
  header.pull = in.U32();
  header.payload_bytes = in.U32();
  header.offset = in.U64();
  header.payload_check = in.U32();
  const uint32_t check = in.U32();
  // The magic comes first: a peer with another protocol gets the clearest error.
  if (magic != kFrameMagic) return Malformed(absl::StrFormat("magic %08x", magic));
  // The check precedes the other fields, so that a damaged length is never used.
  if (check != FrameCheck(bytes.substr(0, kCheckedHeaderBytes))) return Malformed("header check");
  if (!KnownType(type)) return Malformed(absl::StrCat("type ", type));
  header.type = static_cast<FrameType>(type);
  const absl::Status status = CheckHeader(header);
  if (!status.ok()) return status;
  return header;
}

FrameHeader ControlHeader(FrameType type, uint32_t pull, absl::string_view payload, uint8_t flags) {
  PHALANX_CHECK(payload.size() <= kMaxControlBytes, "control payloads are small");
  FrameHeader header;
  header.type = type;
  header.flags = flags;
  header.pull = pull;
  header.payload_bytes = static_cast<uint32_t>(payload.size());
  header.payload_check = FrameCheck(payload);
  return header;
}

std::string EncodePayload(const OpenPayload& open) {
  std::string packed;
  ByteWriter out(packed);
  Write(out, open.sender);
  out.Raw(open.object.binary());
  Write(out, open.generation);
  // Clamped to what DecodeOpen accepts: a duration below a millisecond would be 0.
  out.U32(static_cast<uint32_t>(
      std::clamp<int64_t>(absl::ToInt64Milliseconds(open.sign_of_life), 1, kMaxSignOfLifeMillis)));
  out.U8(static_cast<uint8_t>(open.wants.size()));
  for (const OpenPayload::Want& want : open.wants) {
    out.U8(want.slice);
    out.U64(want.offset);
  }
  return packed;
}

absl::StatusOr<OpenPayload> DecodeOpen(absl::string_view payload) {
  ByteReader in(payload);
  OpenPayload open;
  open.sender = ReadNodeKey(in);
  const absl::StatusOr<ObjectId> object = ObjectId::FromBinary(in.Raw(ObjectId::kSize));
  open.generation = ReadGeneration(in);
  const uint32_t millis = in.U32();
  if (millis == 0 || millis > kMaxSignOfLifeMillis) in.Fail("sign of life out of bounds");
  open.sign_of_life = absl::Milliseconds(millis);
  const int wants = in.U8();
  if (wants == 0 || wants > kMaxSlices) in.Fail("number of slices out of bounds");
  int lowest_slice = 0;
  // Stops at the first failure, after which the reader returns only zeros.
  for (int i = 0; i < wants && in.ok(); ++i) {
    open.wants.push_back(ReadWant(in, lowest_slice));
    lowest_slice = open.wants.back().slice + 1;
  }
  const absl::Status status = in.Finish();
  if (!status.ok()) return status;
  // Valid here: Finish would have returned an error if the id had been cut off.
  open.object = *object;
  if (open.object.nil()) return Malformed("OPEN of the nil id");
  return open;
}

std::string EncodePayload(const AcceptPayload& accept) {
  std::string packed;
  ByteWriter out(packed);
  Write(out, accept.generation);
  out.U64(accept.object_bytes);
  out.U8(accept.slices);
  return packed;
}

absl::StatusOr<AcceptPayload> DecodeAccept(absl::string_view payload) {
  ByteReader in(payload);
  AcceptPayload accept;
  accept.generation = ReadGeneration(in);
  accept.object_bytes = in.U64();
  accept.slices = in.U8();
  if (accept.object_bytes > kMaxObjectBytes) in.Fail("object too large");
  if (accept.slices == 0 || accept.slices > kMaxSlices) in.Fail("number of slices out of bounds");
  const absl::Status status = in.Finish();
  if (!status.ok()) return status;
  return accept;
}

std::string EncodePayload(const StarvedPayload& starved) {
  std::string packed;
  // A negative time would become a huge unsigned one, which DecodeStarved rejects.
  ByteWriter(packed).U64(
      static_cast<uint64_t>(std::max<int64_t>(0, absl::ToInt64Microseconds(starved.total))));
  return packed;
}

absl::StatusOr<StarvedPayload> DecodeStarved(absl::string_view payload) {
  ByteReader in(payload);
  const uint64_t micros = in.U64();
  // No pull runs this long, so the number is wrong.
  if (micros > uint64_t{1} << 53) in.Fail("starved time out of bounds");
  const absl::Status status = in.Finish();
  if (!status.ok()) return status;
  return StarvedPayload{absl::Microseconds(static_cast<int64_t>(micros))};
}

std::string EncodePayload(const LinkPayload& link) {
  std::string packed;
  ByteWriter out(packed);
  out.U64(link.session);
  out.U64(link.known_session);
  out.U64(link.received);
  out.U64(link.attempt);
  return packed;
}

absl::StatusOr<LinkPayload> DecodeLink(absl::string_view payload) {
  ByteReader in(payload);
  LinkPayload link;
  link.session = in.U64();
  link.known_session = in.U64();
  link.received = in.U64();
  link.attempt = in.U64();
  if (link.session == 0) in.Fail("a link without a session");
  if (link.attempt == 0) in.Fail("a link without an attempt");
  if (link.known_session == 0 && link.received != 0) in.Fail("bytes of no session");
  const absl::Status status = in.Finish();
  if (!status.ok()) return status;
  return link;
}

std::string EncodePayload(const absl::Status& reason) {
  std::string packed;
  ByteWriter out(packed);
  out.U32(static_cast<uint32_t>(reason.code()));
  // The text is for people, so a long one is cut.
  out.Bytes(reason.message().substr(0, kMaxAbortTextBytes));
  return packed;
}

absl::Status DecodeAborted(absl::string_view payload, absl::Status& reason) {
  ByteReader in(payload);
  const uint32_t code = in.U32();
  const absl::string_view text = in.Bytes(kMaxAbortTextBytes);
  const absl::Status status = in.Finish();
  if (!status.ok()) return status;
  // A later version can add codes. OK would turn an abort into a success.
  const bool known = code > 0 && code <= static_cast<uint32_t>(absl::StatusCode::kUnauthenticated);
  reason =
      absl::Status(known ? static_cast<absl::StatusCode>(code) : absl::StatusCode::kUnknown, text);
  return absl::OkStatus();
}

}  // namespace phalanx::net
