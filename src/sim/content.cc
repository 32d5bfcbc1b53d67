#include "src/sim/content.h"

#include <algorithm>
#include <cstring>

namespace phalanx::sim {
namespace {

constexpr uint64_t kWord = sizeof(uint64_t);

// The eight bytes at word * 8; a mix that is cheap and has no period that anybody would hit.
uint64_t Word(uint64_t attempt, uint64_t word) {
  uint64_t z = (attempt + 1) * 0x9e3779b97f4a7c15 + word * 0xd1342543de82ef95;
  z = (z ^ (z >> 32)) * 0xd6e8feb86659fd93;
  return z ^ (z >> 29);
}

// Calls visit(position in the span, bytes, length) for the pieces of the range, in order, until it
// returns false.
template <typename Visit>
void ForEachPiece(uint64_t attempt, uint64_t offset, uint64_t size, Visit visit) {
  for (uint64_t at = 0; at < size;) {
    const uint64_t within = (offset + at) % kWord;
    const uint64_t length = std::min(kWord - within, size - at);
    const uint64_t word = Word(attempt, (offset + at) / kWord);
    if (!visit(at, reinterpret_cast<const char*>(&word) + within, length)) return;
    at += length;
  }
}

}  // namespace

void FillContent(uint64_t attempt, uint64_t offset, absl::Span<char> out) {
  ForEachPiece(attempt, offset, out.size(), [out](uint64_t at, const char* bytes, uint64_t length) {
    std::memcpy(out.data() + at, bytes, length);
    return true;
  });
}

std::string ContentOf(uint64_t attempt, uint64_t size_bytes) {
  std::string bytes(size_bytes, '\0');
  FillContent(attempt, 0, absl::MakeSpan(&bytes[0], bytes.size()));
  return bytes;
}

std::optional<uint64_t> FirstWrongByte(uint64_t attempt, uint64_t offset,
                                       absl::Span<const char> bytes) {
  std::optional<uint64_t> wrong;
  ForEachPiece(attempt, offset, bytes.size(),
               [&](uint64_t at, const char* expected, uint64_t length) {
                 if (std::memcmp(bytes.data() + at, expected, length) == 0) return true;
                 for (uint64_t i = 0; i < length && !wrong; ++i) {
                   if (bytes[at + i] != expected[i]) wrong = offset + at + i;
                 }
                 return false;
               });
  return wrong;
}

}  // namespace phalanx::sim
