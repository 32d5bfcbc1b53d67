// Bytes with a closed form, and their hash: what benchmarks put, and how every rank checks every
// byte it got.
//
// Word i of pattern `seed` is a mix of (seed, i), so that a byte in the wrong place, of another run
// or of another rank never passes. Any thread.
#ifndef PHALANX_RUNTIME_BENCH_PATTERN_H_
#define PHALANX_RUNTIME_BENCH_PATTERN_H_

#include <cstdint>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace phalanx::runtime::bench {

void FillPattern(uint64_t seed, absl::Span<char> out);

// True when `bytes` is exactly pattern `seed`.
bool MatchesPattern(uint64_t seed, absl::string_view bytes);

}  // namespace phalanx::runtime::bench

#endif  // PHALANX_RUNTIME_BENCH_PATTERN_H_
