// Elements with a closed form, and the expected result of a reduction of them. Every step of a fold
// of these sources is exact in the dtype, so the bits of the result do not depend on the order of
// the fold.
//
// Element i of rank r's source depends on r and on i modulo a prime, so that a missing, duplicated
// or shifted source never passes the check. Any thread.
#ifndef PHALANX_CLI_BENCH_ELEMENT_PATTERN_H_
#define PHALANX_CLI_BENCH_ELEMENT_PATTERN_H_

#include <cstdint>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "phalanx/elements.h"

namespace phalanx::runtime::bench {

struct Elements {
  DType dtype = DType::kF32;
  ReduceOp op = ReduceOp::kSum;
};

// More sources would make sums of bf16 inexact.
inline constexpr int kMaxExactRanks = 50;

// REQUIRES: `out` has a whole number of elements.
void FillElements(const Elements& elements, uint64_t seed, int rank, absl::Span<char> out);

// Returns whether `bytes` are the op's result over the sources of `ranks`, starting at element
// number `first`. Compares every bit, except for a mean, whose last bits can differ.
bool MatchesReduction(const Elements& elements, uint64_t seed, const std::vector<int>& ranks,
                      uint64_t first, absl::string_view bytes);

}  // namespace phalanx::runtime::bench

#endif  // PHALANX_CLI_BENCH_ELEMENT_PATTERN_H_
