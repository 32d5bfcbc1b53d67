#include "src/sim/cluster/content.h"

#include <algorithm>
#include <cstring>

namespace phalanx::sim {
namespace {

constexpr uint64_t kWord = sizeof(uint64_t);

// The eight bytes at word * 8: a cheap mix without a period that a test could hit.
uint64_t Word(uint64_t attempt, uint64_t word) {
  uint64_t z = (attempt + 1) * 0x9e3779b97f4a7c15 + word * 0xd1342543de82ef95;
  z = (z ^ (z >> 32)) * 0xd6e8feb86659fd93;
  return z ^ (z >> 29);
}

// Calls visit(position in the span, bytes, length) for the pieces of the range in order, until it
// returns false. All pieces except the first and the last are whole words of constant length,
// because calls of memcmp with a variable length would take most of a simulation's time.
template <typename Visit>
void ForEachPiece(uint64_t attempt, uint64_t offset, uint64_t size, Visit visit) {
  uint64_t at = 0;
  const auto part = [&](uint64_t length) {
    const uint64_t word = Word(attempt, (offset + at) / kWord);
    const bool on = visit(at, reinterpret_cast<const char*>(&word) + (offset + at) % kWord, length);
    at += length;
    return on;
  };
  if (offset % kWord != 0 && size > 0 && !part(std::min(kWord - offset % kWord, size))) return;
  for (uint64_t index = (offset + at) / kWord; size - at >= kWord; ++index, at += kWord) {
    const uint64_t word = Word(attempt, index);
    if (!visit(at, reinterpret_cast<const char*>(&word), kWord)) return;
  }
  if (at < size) part(size - at);
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
                 if (length == kWord ? std::memcmp(bytes.data() + at, expected, kWord) == 0
                                     : std::memcmp(bytes.data() + at, expected, length) == 0) {
                   return true;
                 }
                 for (uint64_t i = 0; i < length && !wrong; ++i) {
                   if (bytes[at + i] != expected[i]) wrong = offset + at + i;
                 }
                 return false;
               });
  return wrong;
}

}  // namespace phalanx::sim
