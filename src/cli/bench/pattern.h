// Bytes with a closed form. Benchmarks put them, and every rank checks every byte that it received.
//
// Word i of pattern `seed` is a mix of (seed, i), so that a byte from the wrong place, another run
// or another rank never passes the check. Any thread.
#ifndef PHALANX_CLI_BENCH_PATTERN_H_
#define PHALANX_CLI_BENCH_PATTERN_H_

#include <cstdint>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace phalanx::runtime::bench {

void FillPattern(uint64_t seed, absl::Span<char> out);

// True if `bytes` are exactly pattern `seed`.
bool MatchesPattern(uint64_t seed, absl::string_view bytes);

}  // namespace phalanx::runtime::bench

#endif  // PHALANX_CLI_BENCH_PATTERN_H_
