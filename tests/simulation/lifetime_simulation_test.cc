// Some seeds of simulated lifetimes, with every ordinary test run. More by hand:
// docs/simulation.md.
#include "src/sim/workloads/lifetime_simulation.h"

#include <cstdint>

#include "gtest/gtest.h"
#include "src/common/io/log.h"
#include "tests/simulation/seeds.h"

namespace phalanx::sim {
namespace {

SimulationResult ExpectSeedFine(uint64_t seed, bool peace) {
  return ExpectFine(DrawLifetimePlan(seed, peace), RunLifetimeSimulation);
}

using LifetimeSimulation = SeedsTest;

TEST_P(LifetimeSimulation, HeldObjectsStayAndUnreferencedOnesAreFreed) {
  ExpectSeedsFine(GetParam(), DrawLifetimePlan, RunLifetimeSimulation);
}

INSTANTIATE_TEST_SUITE_P(Seeds, LifetimeSimulation, ::testing::Range(0, kCases));

// The checker must have something to check, also during faults.
TEST(LifetimeSimulationRun, ChecksManySafeObjects) {
  SetLogLevel(LogLevel::kOff);
  for (const bool peace : {true, false}) {
    uint64_t objects = 0;
    uint64_t checked = 0;
    for (uint64_t seed = 1; seed <= 20; ++seed) {
      const SimulationResult result = ExpectSeedFine(seed, peace);
      objects += result.operations;
      checked += result.bytes_checked;
    }
    EXPECT_GT(objects, 1000u);
    EXPECT_GT(checked, 100'000u);
  }
}

TEST(LifetimeSimulationRun, ReplaysExactlyFromItsSeed) {
  ExpectReplay(DrawLifetimePlan, RunLifetimeSimulation);
}

}  // namespace
}  // namespace phalanx::sim
