// The seed of a random test: PHALANX_SEED if it is set, otherwise the test's default. Testonly.
//
//   const uint64_t seed = testing::TestSeed(7);
//   PHALANX_TRACE_SEED(seed);   // every failure in this scope prints "PHALANX_SEED=7"
#ifndef PHALANX_COMMON_TESTING_SEED_H_
#define PHALANX_COMMON_TESTING_SEED_H_

#include <cstdint>
#include <cstdlib>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "src/common/check.h"

namespace phalanx::testing {

// Returns true if PHALANX_SEED is set: a test over many seeds then runs only this one.
inline bool SeedGiven() { return std::getenv("PHALANX_SEED") != nullptr; }

// Aborts if PHALANX_SEED is not a number: a replay with another seed would prove nothing.
inline uint64_t TestSeed(uint64_t default_seed = 1) {
  const char* text = std::getenv("PHALANX_SEED");
  if (text == nullptr) return default_seed;
  uint64_t seed = 0;
  PHALANX_CHECK(absl::SimpleAtoi(text, &seed), "PHALANX_SEED is not a number");
  return seed;
}

}  // namespace phalanx::testing

#define PHALANX_TRACE_SEED(seed) SCOPED_TRACE(absl::StrCat("replay with PHALANX_SEED=", (seed)))

#endif  // PHALANX_COMMON_TESTING_SEED_H_
