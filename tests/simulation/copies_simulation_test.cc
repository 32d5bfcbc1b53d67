// Some seeds of simulated copies on several hosts, with every ordinary test run. docs/simulation.md
// explains how to run more by hand.
#include "src/sim/workloads/copies_simulation.h"

#include <cstdint>

#include "gtest/gtest.h"
#include "src/common/io/log.h"
#include "tests/simulation/seeds.h"

namespace phalanx::sim {
namespace {

using CopiesSimulation = SeedsTest;

TEST_P(CopiesSimulation, EachObjectHasItsCopiesOnDifferentHosts) {
  ExpectSeedsFine(GetParam(), DrawCopiesPlan, RunCopiesSimulation);
}

INSTANTIATE_TEST_SUITE_P(Seeds, CopiesSimulation, ::testing::Range(0, kCases));

// The checker must have something to check, also during faults.
TEST(CopiesSimulationRun, PlacesManyCopies) {
  SetLogLevel(LogLevel::kOff);
  for (const bool peace : {true, false}) {
    uint64_t answered = 0;
    uint64_t checked = 0;
    for (uint64_t seed = 1; seed <= 20; ++seed) {
      const SimulationResult result = ExpectFine(DrawCopiesPlan(seed, peace), RunCopiesSimulation);
      answered += result.operations;
      checked += result.bytes_checked;
    }
    EXPECT_GT(answered, 200u);
    EXPECT_GT(checked, 80u);
  }
}

TEST(CopiesSimulationRun, ReplaysExactlyFromItsSeed) {
  ExpectReplay(DrawCopiesPlan, RunCopiesSimulation);
}

}  // namespace
}  // namespace phalanx::sim
