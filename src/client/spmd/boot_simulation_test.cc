// Calls before Load, with names and without, of ranks that die at every step, many seeds.
#include <cstdint>
#include <cstdlib>
#include <iostream>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_join.h"
#include "gtest/gtest.h"
#include "src/client/spmd/testing/boot_world.h"
#include "src/common/testing/seed.h"

namespace phalanx::spmd {
namespace {

using testing::BootWorld;

// PHALANX_TEST_SEEDS=1000000 runs so many.
uint64_t Seeds() {
  uint64_t seeds = 20'000;
  const char* text = std::getenv("PHALANX_TEST_SEEDS");
  if (text != nullptr && !absl::SimpleAtoi(text, &seeds)) return 0;
  return phalanx::testing::SeedGiven() ? 1 : seeds;
}

TEST(BootSimulation, EveryCallHasItsResultInAnyOrder) {
  const uint64_t first = phalanx::testing::TestSeed(1);
  BootWorld::Counts all;
  for (uint64_t seed = first; seed < first + Seeds(); ++seed) {
    PHALANX_TRACE_SEED(seed);
    BootWorld world(seed);
    const std::vector<std::string> wrong = world.Run();
    ASSERT_TRUE(wrong.empty()) << absl::StrJoin(wrong, "\n");
    const BootWorld::Counts& counts = world.counts();
    all.deaths += counts.deaths;
    all.repeated += counts.repeated;
    all.early += counts.early;
    all.left_out += counts.left_out;
    all.runs += counts.runs;
  }
  std::cout << all.deaths << " deaths, " << all.repeated << " calls repeated, " << all.early
            << " before others, " << all.left_out << " left out, " << all.runs
            << " runs began anew\n";
  if (Seeds() == 1) return;
  for (const uint64_t count : {all.repeated, all.early, all.left_out, all.runs}) {
    EXPECT_GT(count, 0u);
  }
}

}  // namespace
}  // namespace phalanx::spmd
