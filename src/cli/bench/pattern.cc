#include "src/cli/bench/pattern.h"

#include <cstring>

namespace phalanx::runtime::bench {
namespace {

// The finaliser of SplitMix64 (Steele, Lea and Flood, 2014).
uint64_t Word(uint64_t seed, uint64_t index) {
  // seed + 1, because the word of two zeros would be zero, which unwritten memory matches.
  uint64_t z = (seed + 1) * 0x9e3779b97f4a7c15 + index * 0xd1342543de82ef95;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
  z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
  return z ^ (z >> 31);
}

}  // namespace

void FillPattern(uint64_t seed, absl::Span<char> out) {
  const size_t words = out.size() / 8;
  for (size_t i = 0; i < words; ++i) {
    const uint64_t word = Word(seed, i);
    std::memcpy(out.data() + i * 8, &word, 8);
  }
  const uint64_t last = Word(seed, words);
  std::memcpy(out.data() + words * 8, &last, out.size() % 8);
}

bool MatchesPattern(uint64_t seed, absl::string_view bytes) {
  // Compared word by word, without a second buffer of the object's size.
  const size_t words = bytes.size() / 8;
  for (size_t i = 0; i < words; ++i) {
    const uint64_t word = Word(seed, i);
    if (std::memcmp(bytes.data() + i * 8, &word, 8) != 0) return false;
  }
  const uint64_t last = Word(seed, words);
  return std::memcmp(bytes.data() + words * 8, &last, bytes.size() % 8) == 0;
}

}  // namespace phalanx::runtime::bench
