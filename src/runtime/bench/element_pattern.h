// Elements with a closed form, and what a reduction of them must be: sources of which every step of
// the fold is exact in the dtype, so that the result's bits do not depend on its order.
//
// Element i of rank r's source depends on r and on i modulo a prime, so that a source that is
// missing, there twice or shifted never passes. Any thread.
#ifndef PHALANX_RUNTIME_BENCH_ELEMENT_PATTERN_H_
#define PHALANX_RUNTIME_BENCH_ELEMENT_PATTERN_H_

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

// REQUIRES: `out` has whole elements.
void FillElements(const Elements& elements, uint64_t seed, int rank, absl::Span<char> out);

// Whether `bytes` are what the op makes of the sources of `ranks`, from the element number `first`
// on: bit for bit, but for a mean, whose last bits may differ.
bool MatchesReduction(const Elements& elements, uint64_t seed, const std::vector<int>& ranks,
                      uint64_t first, absl::string_view bytes);

}  // namespace phalanx::runtime::bench

#endif  // PHALANX_RUNTIME_BENCH_ELEMENT_PATTERN_H_
