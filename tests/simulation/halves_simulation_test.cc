// Clusters under random faults in which any two nodes that want an object pull it in two trees,
// each of half its slices.
#include <cstdint>
#include <string>

#include "gtest/gtest.h"
#include "src/common/io/log.h"
#include "src/sim/workloads/broadcast_simulation.h"
#include "src/sim/workloads/cut_simulation.h"
#include "src/sim/workloads/simulation.h"
#include "tests/simulation/seeds.h"

namespace phalanx::sim {
namespace {

SimulationPlan DrawAnything(uint64_t seed, bool /*peace*/) { return InHalves(DrawPlan(seed)); }
BroadcastPlan DrawBroadcasts(uint64_t seed, bool peace) {
  return InHalves(DrawBroadcastPlan(seed, peace));
}
CutPlan DrawCuts(uint64_t seed, bool peace) { return InHalves(DrawTransferCutPlan(seed, peace)); }

using HalvesSimulation = SeedsTest;

TEST_P(HalvesSimulation, EndsCorrectlyUnderRandomFaults) {
  ExpectSeedsFine(GetParam(), DrawAnything, RunSimulation);
}

TEST_P(HalvesSimulation, EachNodeGetsItsStickyObjects) {
  ExpectSeedsFine(GetParam(), DrawBroadcasts, RunBroadcastSimulation);
}

TEST_P(HalvesSimulation, EveryNodeGetsTheObjectAroundCuts) {
  ExpectSeedsFine(GetParam(), DrawCuts, RunCutSimulation);
}

INSTANTIATE_TEST_SUITE_P(Seeds, HalvesSimulation, ::testing::Range(0, kCases));

// Otherwise the tests above are of one tree.
template <typename Plan>
uint64_t Splits(Plan (*draw)(uint64_t, bool), SimulationResult (*run)(const Plan&)) {
  SetLogLevel(LogLevel::kOff);
  uint64_t splits = 0;
  for (uint64_t seed = 1; seed <= 10; ++seed) splits += run(draw(seed, false)).splits;
  return splits;
}

TEST(HalvesSimulationRun, PullsManyObjectsInTwoTrees) {
  EXPECT_GT(Splits(DrawAnything, RunSimulation), 50u);
  EXPECT_GT(Splits(DrawBroadcasts, RunBroadcastSimulation), 20u);
  EXPECT_GT(Splits(DrawCuts, RunCutSimulation), 10u);
}

TEST(HalvesSimulationRun, ReplaysExactlyFromItsSeed) { ExpectReplay(DrawAnything, RunSimulation); }

}  // namespace
}  // namespace phalanx::sim
