// Some seeds of simulated reductions with every ordinary test run. More by hand:
// docs/simulation.md.
#include "src/sim/reduce_simulation.h"

#include <cstdint>
#include <cstdlib>

#include "absl/strings/numbers.h"
#include "gtest/gtest.h"
#include "src/common/log.h"
#include "src/common/testing/seed.h"

namespace phalanx::sim {
namespace {

constexpr uint64_t kSeeds = 200;
constexpr int kCases = 20;

uint64_t NumSeeds() {
  const char* text = std::getenv("PHALANX_SEEDS");
  uint64_t seeds = kSeeds;
  return text != nullptr && absl::SimpleAtoi(text, &seeds) ? seeds : kSeeds;
}

SimulationResult ExpectFine(uint64_t seed, bool peace) {
  PHALANX_TRACE_SEED(seed);
  const ReducePlanOfRun plan = DrawReducePlan(seed, peace);
  const SimulationResult result = RunReduceSimulation(plan);
  EXPECT_TRUE(result.status.ok()) << Describe(plan) << "\n" << result.tail << "\n" << result.status;
  return result;
}

class ReduceSimulation : public ::testing::TestWithParam<int> {
 protected:
  void SetUp() override { SetLogLevel(LogLevel::kOff); }
};

TEST_P(ReduceSimulation, ComesOutRightWhateverBreaks) {
  if (testing::SeedGiven()) {
    if (GetParam() == 0) ExpectFine(testing::TestSeed(), /*peace=*/false);
    return;
  }
  for (uint64_t seed = 1 + static_cast<uint64_t>(GetParam()); seed <= NumSeeds(); seed += kCases) {
    ExpectFine(seed, /*peace=*/false);
    if (::testing::Test::HasFailure()) return;
  }
}

INSTANTIATE_TEST_SUITE_P(Seeds, ReduceSimulation, ::testing::Range(0, kCases));

// Two results of one reduction, an addition that was left out, a result that was lost and waited
// for: each was found by one of these.
TEST(ReduceSimulationRun, SeedsThatFoundSomethingAreFineNow) {
  for (const uint64_t seed : {805, 1010, 1213, 1472, 1756, 9335, 60236}) {
    ExpectFine(seed, /*peace=*/false);
  }
}

TEST(ReduceSimulationRun, InPeaceEveryResultIsTheOnlyOne) {
  SetLogLevel(LogLevel::kOff);
  uint64_t reductions = 0;
  uint64_t bytes = 0;
  uint64_t from_rings = 0;
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    const SimulationResult result = ExpectFine(seed, /*peace=*/true);
    from_rings += result.from_rings;
    reductions += result.operations;
    bytes += result.bytes_checked;
  }
  EXPECT_GT(reductions, 200u);
  EXPECT_GT(bytes, 1'000'000u);
  EXPECT_GT(from_rings, 20u);
}

// Under fire, too: what of the storms' results a ring has made.
TEST(ReduceSimulationRun, RingsComeToTheirEndsInStorms) {
  SetLogLevel(LogLevel::kOff);
  uint64_t from_rings = 0;
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    from_rings += ExpectFine(seed, /*peace=*/false).from_rings;
  }
  EXPECT_GT(from_rings, 5u);
}

TEST(ReduceSimulationRun, IsTheSameAgainFromItsSeed) {
  SetLogLevel(LogLevel::kOff);
  for (uint64_t seed = 1; seed <= 5; ++seed) {
    const SimulationResult first = RunReduceSimulation(DrawReducePlan(seed));
    const SimulationResult second = RunReduceSimulation(DrawReducePlan(seed));
    EXPECT_EQ(first.trace_hash, second.trace_hash);
    EXPECT_EQ(first.events, second.events);
  }
}

}  // namespace
}  // namespace phalanx::sim
