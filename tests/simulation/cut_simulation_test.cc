// Some seeds of simulated reductions, Gets and broadcasts among nodes of which some cannot reach
// each other, with every ordinary test run. More by hand: docs/simulation.md.
#include "src/sim/workloads/cut_simulation.h"

#include <cstdint>

#include "gtest/gtest.h"
#include "src/common/io/log.h"
#include "tests/simulation/seeds.h"

namespace phalanx::sim {
namespace {

using CutSimulation = SeedsTest;

TEST_P(CutSimulation, EveryRoundEndsInTimeWithTheExactSum) {
  ExpectSeedsFine(GetParam(), DrawCutPlan, RunCutSimulation);
}

TEST_P(CutSimulation, EveryRoundInTheOrderOfARingEndsInTimeWithItsBits) {
  ExpectSeedsFine(GetParam(), DrawRingCutPlan, RunCutSimulation);
}

TEST_P(CutSimulation, EveryGetAndBroadcastEndsInTime) {
  ExpectSeedsFine(GetParam(), DrawTransferCutPlan, RunCutSimulation);
}

INSTANTIATE_TEST_SUITE_P(Seeds, CutSimulation, ::testing::Range(0, kCases));

TEST(CutSimulationRun, RingsMakeResultsWhileTheirNeighboursReachEachOther) {
  SetLogLevel(LogLevel::kOff);
  uint64_t from_rings = 0;
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    from_rings += ExpectFine(DrawCutPlan(seed), RunCutSimulation).from_rings;
  }
  EXPECT_GT(from_rings, 5u);
}

TEST(CutSimulationRun, SlicesTakeThePlaceOfRingsAcrossCuts) {
  SetLogLevel(LogLevel::kOff);
  uint64_t from_rings = 0;
  uint64_t from_slices = 0;
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    const SimulationResult result = ExpectFine(DrawRingCutPlan(seed), RunCutSimulation);
    from_rings += result.from_rings;
    from_slices += result.from_slices;
  }
  EXPECT_GT(from_rings, 100u);
  EXPECT_GT(from_slices, 100u);
}

TEST(CutSimulationRun, ReplaysExactlyFromItsSeed) {
  ExpectReplay(DrawCutPlan, RunCutSimulation, 3);
  ExpectReplay(DrawRingCutPlan, RunCutSimulation, 3);
  ExpectReplay(DrawTransferCutPlan, RunCutSimulation, 3);
}

}  // namespace
}  // namespace phalanx::sim
