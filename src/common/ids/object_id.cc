#include "phalanx/object_id.h"

#include <sys/random.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <ostream>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "src/common/ids/random_id.h"

namespace phalanx {
namespace {

// The value is arbitrary but can never change: it determines the ids of names in use.
constexpr uint64_t kTailSeed = 0x7068616c616e7831;
// Likewise: it determines the mark of drawn ids.
constexpr uint64_t kMarkSeed = 0x7068616c616e7832;
constexpr size_t kDrawnBytes = 16;

uint32_t MarkOf(const char* drawn) {
  return static_cast<uint32_t>(XXH3_64bits_withSeed(drawn, kDrawnBytes, kMarkSeed));
}

// Little-endian on every machine: all processes must derive the same id from a name.
void AppendLength(std::string& out, size_t length) {
  for (int shift = 0; shift < 64; shift += 8) {
    out.push_back(static_cast<char>((static_cast<uint64_t>(length) >> shift) & 0xff));
  }
}

}  // namespace

ObjectId RandomIdOf(const std::array<uint8_t, 16>& drawn) {
  std::string bytes(reinterpret_cast<const char*>(drawn.data()), kDrawnBytes);
  const uint32_t mark = MarkOf(bytes.data());
  for (int i = 0; i < 4; ++i) bytes.push_back(static_cast<char>(mark >> (8 * i) & 0xff));
  return ObjectId::FromBinary(bytes).value();
}

bool IsRandomId(const ObjectId& id) {
  const char* bytes = id.binary().data();
  const uint32_t mark = MarkOf(bytes);
  for (int i = 0; i < 4; ++i) {
    if (static_cast<uint8_t>(bytes[kDrawnBytes + i]) != (mark >> (8 * i) & 0xff)) return false;
  }
  return true;
}

ObjectId ObjectId::Random() {
  std::array<uint8_t, kDrawnBytes> drawn;
  size_t filled = 0;
  while (filled < drawn.size()) {
    const ssize_t got = getrandom(drawn.data() + filled, drawn.size() - filled, 0);
    if (got >= 0) {
      filled += static_cast<size_t>(got);
    } else if (errno != EINTR) {
      // Every supported kernel has getrandom(2). An abort is better than an id that is not random,
      // since two objects could get the same one.
      std::abort();
    }
  }
  return RandomIdOf(drawn);
}

ObjectId ObjectId::FromName(absl::string_view name_space, absl::string_view name) {
  // The length prefix distinguishes ("a", "bc") from ("ab", "c").
  std::string key;
  key.reserve(8 + name_space.size() + name.size());
  AppendLength(key, name_space.size());
  absl::StrAppend(&key, name_space, name);

  ObjectId id;
  // The canonical form does not depend on the byte order of the machine.
  XXH128_canonical_t head;
  XXH128_canonicalFromHash(&head, XXH3_128bits(key.data(), key.size()));
  static_assert(sizeof(head.digest) == 16);
  std::memcpy(id.bytes_.data(), head.digest, 16);
  const uint64_t tail = XXH3_64bits_withSeed(key.data(), key.size(), kTailSeed);
  for (int i = 0; i < 4; ++i) id.bytes_[16 + i] = static_cast<uint8_t>(tail >> (8 * i));
  return id;
}

absl::StatusOr<ObjectId> ObjectId::FromBinary(absl::string_view bytes) {
  if (bytes.size() != kSize) {
    return absl::InvalidArgumentError(
        absl::StrCat("an object id has ", kSize, " bytes, not ", bytes.size()));
  }
  ObjectId id;
  std::memcpy(id.bytes_.data(), bytes.data(), kSize);
  return id;
}

absl::StatusOr<ObjectId> ObjectId::FromHex(absl::string_view hex) {
  if (hex.size() != 2 * kSize) {
    return absl::InvalidArgumentError(absl::StrCat(
        "an object id has ", 2 * kSize, " hexadecimal digits, not ", hex.size(), " characters"));
  }
  for (const char c : hex) {
    if (!absl::ascii_isxdigit(static_cast<unsigned char>(c))) {
      return absl::InvalidArgumentError(absl::StrCat("an object id has hexadecimal digits only: \"",
                                                     absl::CHexEscape(hex), "\""));
    }
  }
  return FromBinary(absl::HexStringToBytes(hex));
}

std::string ObjectId::hex() const { return absl::BytesToHexString(binary()); }

std::string ObjectId::ShortHex() const { return absl::BytesToHexString(binary().substr(0, 4)); }

// A hash and not a prefix of the id: ids that a caller numbers itself must spread over the shards,
// too.
uint64_t ObjectId::ShardHash() const { return XXH3_64bits(bytes_.data(), kSize); }

}  // namespace phalanx
