// Some seeds of simulated reductions in the order of a ring, with every ordinary test run. More by
// hand: docs/simulation.md.
#include "src/sim/workloads/ring_simulation.h"

#include <cstdint>

#include "gtest/gtest.h"
#include "src/common/io/log.h"
#include "tests/simulation/seeds.h"

namespace phalanx::sim {
namespace {

using RingSimulation = SeedsTest;

TEST_P(RingSimulation, EveryResultHasTheBitsOfTheOrder) {
  ExpectSeedsFine(GetParam(), DrawRingPlan, RunRingSimulation);
}

INSTANTIATE_TEST_SUITE_P(Seeds, RingSimulation, ::testing::Range(0, kCases));

TEST(RingSimulationRun, RingsMakeTheResultsWithoutFaults) {
  SetLogLevel(LogLevel::kOff);
  uint64_t reductions = 0;
  uint64_t from_rings = 0;
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    const SimulationResult result =
        ExpectFine(DrawRingPlan(seed, /*peace=*/true), RunRingSimulation);
    reductions += result.operations;
    from_rings += result.from_rings;
  }
  EXPECT_GT(reductions, 200u);
  EXPECT_GT(from_rings, reductions);
}

// With faults too; and where there is none, slices take its place.
TEST(RingSimulationRun, RingsEndDuringStorms) {
  SetLogLevel(LogLevel::kOff);
  uint64_t from_rings = 0;
  uint64_t from_slices = 0;
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    const SimulationResult result = ExpectFine(DrawRingPlan(seed), RunRingSimulation);
    from_rings += result.from_rings;
    from_slices += result.from_slices;
  }
  EXPECT_GT(from_rings, 100u);
  EXPECT_GT(from_slices, 100u);
}

TEST(RingSimulationRun, ReplaysExactlyFromItsSeed) {
  ExpectReplay(DrawRingPlan, RunRingSimulation);
}

}  // namespace
}  // namespace phalanx::sim
