#include "src/jobs/messages/message_header.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "absl/strings/str_cat.h"
#include "src/common/io/wire.h"
#include "src/common/status_macros.h"

namespace phalanx::jobs {
namespace {

void Write(ByteWriter& out, const LifeKey& key) {
  out.U64(key.group.high);
  out.U64(key.group.low);
  out.U32(key.rank);
  out.U64(key.life);
}

LifeKey ReadLifeKey(ByteReader& in) {
  LifeKey key;
  key.group.high = in.U64();
  key.group.low = in.U64();
  key.rank = in.U32();
  key.life = in.U64();
  return key;
}

}  // namespace

GroupId GroupIdOf(absl::string_view job, absl::string_view role) {
  std::string names;
  ByteWriter out(names);
  // With its length, so that no two pairs of names give the same bytes.
  out.Bytes(job);
  out.Raw(role);
  const XXH128_hash_t hash = XXH3_128bits(names.data(), names.size());
  return {hash.high64, hash.low64};
}

std::string Encode(const MessageHeader& header) {
  std::string packed;
  ByteWriter out(packed);
  out.U8(static_cast<uint8_t>(header.kind));
  Write(out, header.from);
  Write(out, header.to);
  out.U64(header.stream);
  out.U64(header.count);
  return packed;
}

absl::StatusOr<MessageHeader> DecodeMessageHeader(absl::string_view bytes) {
  ByteReader in(bytes);
  MessageHeader header;
  const uint8_t kind = in.U8();
  if (kind < static_cast<uint8_t>(MessageKind::kMessage) ||
      kind > static_cast<uint8_t>(MessageKind::kRefused)) {
    in.Fail("unknown kind of message");
  }
  header.kind = static_cast<MessageKind>(kind);
  header.from = ReadLifeKey(in);
  header.to = ReadLifeKey(in);
  header.stream = in.U64();
  header.count = in.U64();
  if (header.kind == MessageKind::kRefused && header.count != 0)
    in.Fail("a refusal counts nothing");
  PHALANX_RETURN_IF_ERROR(in.Finish());
  return header;
}

}  // namespace phalanx::jobs
