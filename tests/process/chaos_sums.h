// What the clients of a chaos run reduce: groups of eight sources, and targets made of them.
//
// A group is worked on for some seconds; which one it is now follows from the clock, so that all
// clients work on the same ones. Any client may put any source. Word s of source s is the number of
// the attempt to put it, the other words below kSources are 0, those behind follow from source and
// attempt: so every word of a sum is held against one attempt of each source.
//
// Values and functions; any thread.
#ifndef PHALANX_TESTS_PROCESS_CHAOS_SUMS_H_
#define PHALANX_TESTS_PROCESS_CHAOS_SUMS_H_

#include <cstdint>
#include <set>
#include <string>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace phalanx::testing {

inline constexpr uint64_t kSources = 8;
// kAll and kFixed take all sources, kAny some of them; kOpen begins with half of them, and takes
// what is added.
enum SumKind : uint64_t { kAll, kAny, kFixed, kOpen };
inline constexpr uint64_t kSumKinds = 4;
inline constexpr uint64_t kAnySources = 5;
inline constexpr uint64_t kOpenSources = 4;

// The one that is worked on now. REQUIRES: one machine.
uint64_t GroupNow();
// Names for events: sources come first, then targets.
uint64_t MemberOf(uint64_t group, uint64_t index);
// Of each source and target of the group, whole words.
uint64_t SumBytes(uint64_t group);

void FillSource(uint64_t group, uint64_t source, uint64_t attempt, absl::Span<char> into);

// Empty if `bytes` are a sum of that kind; else what is wrong. `within`: the sources in it.
std::string WrongSum(uint64_t group, SumKind kind, absl::string_view bytes,
                     std::set<uint64_t>* within);

}  // namespace phalanx::testing

#endif  // PHALANX_TESTS_PROCESS_CHAOS_SUMS_H_
