// Some seeds of simulated broadcasts, with every ordinary test run. docs/simulation.md explains how
// to run more by hand.
#include "src/sim/workloads/broadcast_simulation.h"

#include <cstdint>

#include "gtest/gtest.h"
#include "src/common/io/log.h"
#include "tests/simulation/seeds.h"

namespace phalanx::sim {
namespace {

SimulationResult ExpectSeedFine(uint64_t seed, bool peace) {
  return ExpectFine(DrawBroadcastPlan(seed, peace), RunBroadcastSimulation);
}

using BroadcastSimulation = SeedsTest;

TEST_P(BroadcastSimulation, EachNodeGetsItsStickyObjects) {
  ExpectSeedsFine(GetParam(), DrawBroadcastPlan, RunBroadcastSimulation);
}

INSTANTIATE_TEST_SUITE_P(Seeds, BroadcastSimulation, ::testing::Range(0, kCases));

// The checker must have something to check, also during faults.
TEST(BroadcastSimulationRun, BroadcastsManyObjects) {
  SetLogLevel(LogLevel::kOff);
  for (const bool peace : {true, false}) {
    uint64_t answered = 0;
    uint64_t checked = 0;
    for (uint64_t seed = 1; seed <= 20; ++seed) {
      const SimulationResult result = ExpectSeedFine(seed, peace);
      answered += result.operations;
      checked += result.bytes_checked;
    }
    EXPECT_GT(answered, 500u);
    EXPECT_GT(checked, 1000u);
  }
}

TEST(BroadcastSimulationRun, ReplaysExactlyFromItsSeed) {
  ExpectReplay(DrawBroadcastPlan, RunBroadcastSimulation);
}

}  // namespace
}  // namespace phalanx::sim
