#include "tests/process/chaos_sums.h"

#include <array>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "src/common/time/clock.h"

namespace phalanx::testing {
namespace {

constexpr int64_t kGroupSeconds = 3;
constexpr uint64_t kMembers = 16;

uint64_t Mix(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

uint64_t Word(uint64_t group, uint64_t source, uint64_t attempt, uint64_t index) {
  if (index < kSources) return index == source ? attempt : 0;
  return Mix(Mix(group * kMembers + source) ^ Mix(attempt)) + index * 0x9e3779b97f4a7c15;
}

uint64_t Load(absl::string_view bytes, uint64_t index) {
  uint64_t word = 0;
  std::memcpy(&word, bytes.data() + index * sizeof(word), sizeof(word));
  return word;
}

bool Enough(SumKind kind, const std::set<uint64_t>& within) {
  if (kind == kAny) return within.size() == kAnySources;
  const uint64_t needed = kind == kOpen ? kOpenSources : kSources;
  for (uint64_t source = 0; source < needed; ++source) {
    if (within.count(source) == 0) return false;
  }
  return true;
}

}  // namespace

uint64_t GroupNow() {
  return static_cast<uint64_t>(MonotonicNow().nanos() / (kGroupSeconds * 1'000'000'000));
}

uint64_t MemberOf(uint64_t group, uint64_t index) {
  return (uint64_t{1} << 60) + group * kMembers + index;
}

uint64_t SumBytes(uint64_t group) {
  constexpr std::array<uint64_t, 6> kWords = {kSources, 100, 5000, 12000, 40000, 120000};
  const uint64_t draw = Mix(group);
  return (kWords[draw % kWords.size()] + (draw >> 32) % 8) * sizeof(uint64_t);
}

void FillSource(uint64_t group, uint64_t source, uint64_t attempt, absl::Span<char> into) {
  for (uint64_t index = 0; index < into.size() / sizeof(uint64_t); ++index) {
    const uint64_t word = Word(group, source, attempt, index);
    std::memcpy(into.data() + index * sizeof(word), &word, sizeof(word));
  }
}

std::string WrongSum(uint64_t group, SumKind kind, absl::string_view bytes,
                     std::set<uint64_t>* within) {
  if (bytes.size() != SumBytes(group)) {
    return absl::StrCat("has ", bytes.size(), " bytes, not ", SumBytes(group));
  }
  std::array<uint64_t, kSources> attempts = {};
  for (uint64_t source = 0; source < kSources; ++source) {
    attempts[source] = Load(bytes, source);
    if (attempts[source] != 0) within->insert(source);
  }
  if (!Enough(kind, *within)) return absl::StrCat("is of ", within->size(), " sources");
  for (uint64_t index = kSources; index < bytes.size() / sizeof(uint64_t); ++index) {
    uint64_t sum = 0;
    for (const uint64_t source : *within) sum += Word(group, source, attempts[source], index);
    if (sum != Load(bytes, index)) return absl::StrCat("has another sum in its word ", index);
  }
  return "";
}

}  // namespace phalanx::testing
