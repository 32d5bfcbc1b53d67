// Some seeds of simulated scopes, with every ordinary test run. docs/simulation.md explains how to
// run more by hand.
#include "src/sim/workloads/scopes_simulation.h"

#include <cstdint>

#include "gtest/gtest.h"
#include "src/common/io/log.h"
#include "tests/simulation/seeds.h"

namespace phalanx::sim {
namespace {

using ScopesSimulation = SeedsTest;

TEST_P(ScopesSimulation, EndedScopesLeaveNothingBehind) {
  ExpectSeedsFine(GetParam(), DrawScopesPlan, RunScopesSimulation);
}

INSTANTIATE_TEST_SUITE_P(Seeds, ScopesSimulation, ::testing::Range(0, kCases));

// The checker must have something to check, also during faults.
TEST(ScopesSimulationRun, EndsManyScopes) {
  SetLogLevel(LogLevel::kOff);
  for (const bool peace : {true, false}) {
    uint64_t answered = 0;
    uint64_t checked = 0;
    for (uint64_t seed = 1; seed <= 20; ++seed) {
      const SimulationResult result = ExpectFine(DrawScopesPlan(seed, peace), RunScopesSimulation);
      answered += result.operations;
      checked += result.bytes_checked;
    }
    EXPECT_GT(answered, 200u);
    EXPECT_GT(checked, 1000u);
  }
}

TEST(ScopesSimulationRun, ReplaysExactlyFromItsSeed) {
  ExpectReplay(DrawScopesPlan, RunScopesSimulation);
}

}  // namespace
}  // namespace phalanx::sim
