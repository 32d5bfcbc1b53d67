// The reductions of the clients of a chaos run: groups of eight sources, and targets over them.
//
// A group is in use for some seconds. The clock determines the current group, so all clients use
// the same ones. Any client can put any source. Word s of source s is the number of the attempt to
// put it, the other words below kSources are 0, and the later words follow from source and attempt:
// so every word of a sum can be checked against one attempt of each source.
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
// kAll and kFixed take all sources, kAny takes some of them; kOpen starts with half of them, and
// takes the added ones.
enum SumKind : uint64_t { kAll, kAny, kFixed, kOpen };
inline constexpr uint64_t kSumKinds = 4;
inline constexpr uint64_t kAnySources = 5;
inline constexpr uint64_t kOpenSources = 4;

// Returns the current group. REQUIRES: all clients are on one machine.
uint64_t GroupNow();
// Returns a number for events: sources come first, then targets.
uint64_t MemberOf(uint64_t group, uint64_t index);
// Returns the size of each source and target of the group, in whole words.
uint64_t SumBytes(uint64_t group);

void FillSource(uint64_t group, uint64_t source, uint64_t attempt, absl::Span<char> into);

// Returns an empty string if `bytes` are a sum of that kind, else the error. `within`: its sources.
std::string WrongSum(uint64_t group, SumKind kind, absl::string_view bytes,
                     std::set<uint64_t>* within);

}  // namespace phalanx::testing

#endif  // PHALANX_TESTS_PROCESS_CHAOS_SUMS_H_
