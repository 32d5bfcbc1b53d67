#include "src/common/io/utf8.h"

#include <cstddef>
#include <cstdint>

namespace phalanx {
namespace {

// The rest of a sequence, determined by its first byte: how many bytes follow, and the range of the
// first of them (RFC 3629, section 4).
struct Sequence {
  size_t following = 0;
  uint8_t least = 0x80;
  uint8_t most = 0xbf;
};

// Returns false if no sequence begins with `byte`. The ranges exclude overlong sequences (0xc0,
// 0xc1, and after 0xe0 and 0xf0), surrogates (after 0xed) and numbers beyond U+10FFFF (after 0xf4).
bool Begins(uint8_t byte, Sequence* sequence) {
  if (byte < 0x80) {
    *sequence = {0};
  } else if (byte >= 0xc2 && byte <= 0xdf) {
    *sequence = {1};
  } else if (byte >= 0xe0 && byte <= 0xef) {
    *sequence = {2, static_cast<uint8_t>(byte == 0xe0 ? 0xa0 : 0x80),
                 static_cast<uint8_t>(byte == 0xed ? 0x9f : 0xbf)};
  } else if (byte >= 0xf0 && byte <= 0xf4) {
    *sequence = {3, static_cast<uint8_t>(byte == 0xf0 ? 0x90 : 0x80),
                 static_cast<uint8_t>(byte == 0xf4 ? 0x8f : 0xbf)};
  } else {
    return false;
  }
  return true;
}

}  // namespace

bool IsUtf8(absl::string_view text) {
  const auto byte_at = [text](size_t at) { return static_cast<uint8_t>(text[at]); };
  for (size_t at = 0; at < text.size();) {
    Sequence sequence;
    if (!Begins(byte_at(at), &sequence) || text.size() - at <= sequence.following) return false;
    for (size_t i = 1; i <= sequence.following; ++i) {
      const uint8_t least = i == 1 ? sequence.least : 0x80;
      const uint8_t most = i == 1 ? sequence.most : 0xbf;
      if (byte_at(at + i) < least || byte_at(at + i) > most) return false;
    }
    at += sequence.following + 1;
  }
  return true;
}

}  // namespace phalanx
