// The tests that all simulations share: some seeds, split into cases so that they can
// run in parallel. Testonly.
#ifndef PHALANX_TESTS_SIMULATION_SEEDS_H_
#define PHALANX_TESTS_SIMULATION_SEEDS_H_

#include <cstdint>
#include <cstdlib>

#include "absl/strings/numbers.h"
#include "gtest/gtest.h"
#include "src/common/check.h"
#include "src/common/io/log.h"
#include "src/common/testing/seed.h"
#include "src/sim/workloads/simulation_plan.h"

namespace phalanx::sim {

inline constexpr int kCases = 20;

// The number of seeds, from PHALANX_SEEDS.
inline uint64_t NumSeeds() {
  uint64_t seeds = 200;
  const char* text = std::getenv("PHALANX_SEEDS");
  PHALANX_CHECK(text == nullptr || absl::SimpleAtoi(text, &seeds), "PHALANX_SEEDS is not a number");
  return seeds;
}

template <typename Plan>
SimulationResult ExpectFine(const Plan& plan, SimulationResult (*run)(const Plan&)) {
  PHALANX_TRACE_SEED(plan.seed);
  const SimulationResult result = run(plan);
  EXPECT_TRUE(result.status.ok()) << Describe(plan) << "\n" << result.tail << "\n" << result.status;
  return result;
}

// Runs the seeds of this case; or only the seed that the caller gave.
template <typename Plan>
void ExpectSeedsFine(int of_case, Plan (*draw)(uint64_t, bool),
                     SimulationResult (*run)(const Plan&)) {
  if (testing::SeedGiven()) {
    if (of_case == 0) ExpectFine(draw(testing::TestSeed(), /*peace=*/false), run);
    return;
  }
  for (uint64_t seed = 1 + static_cast<uint64_t>(of_case); seed <= NumSeeds(); seed += kCases) {
    ExpectFine(draw(seed, /*peace=*/false), run);
    if (::testing::Test::HasFailure()) return;
  }
}

template <typename Plan>
void ExpectReplay(Plan (*draw)(uint64_t, bool), SimulationResult (*run)(const Plan&),
                  uint64_t seeds = 5) {
  SetLogLevel(LogLevel::kOff);
  for (uint64_t seed = 1; seed <= seeds; ++seed) {
    PHALANX_TRACE_SEED(seed);
    const SimulationResult first = run(draw(seed, /*peace=*/false));
    const SimulationResult second = run(draw(seed, /*peace=*/false));
    EXPECT_EQ(first.trace_hash, second.trace_hash);
    EXPECT_EQ(first.events, second.events);
  }
}

class SeedsTest : public ::testing::TestWithParam<int> {
 protected:
  void SetUp() override { SetLogLevel(LogLevel::kOff); }
};

}  // namespace phalanx::sim

#endif  // PHALANX_TESTS_SIMULATION_SEEDS_H_
