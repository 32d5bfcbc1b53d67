// Some seeds of simulated Deletes, with every ordinary test run. More by hand: docs/simulation.md.
#include "src/sim/workloads/delete_simulation.h"

#include <cstdint>

#include "gtest/gtest.h"
#include "src/common/io/log.h"
#include "tests/simulation/seeds.h"

namespace phalanx::sim {
namespace {

using DeleteSimulation = SeedsTest;

TEST_P(DeleteSimulation, NoGetReturnsWhatWasDeletedBeforeIt) {
  ExpectSeedsFine(GetParam(), DrawDeletePlan, RunDeleteSimulation);
}

INSTANTIATE_TEST_SUITE_P(Seeds, DeleteSimulation, ::testing::Range(0, kCases));

// The oracle must have something to judge, also during faults.
TEST(DeleteSimulationRun, ReadsMuchThatWasDeleted) {
  SetLogLevel(LogLevel::kOff);
  for (const bool peace : {true, false}) {
    uint64_t deletes = 0;
    uint64_t reads = 0;
    for (uint64_t seed = 1; seed <= 20; ++seed) {
      const SimulationResult result = ExpectFine(DrawDeletePlan(seed, peace), RunDeleteSimulation);
      deletes += result.operations;
      reads += result.bytes_checked;
    }
    EXPECT_GT(deletes, 500u);
    EXPECT_GT(reads, 5000u);
  }
}

TEST(DeleteSimulationRun, ReplaysExactlyFromItsSeed) {
  ExpectReplay(DrawDeletePlan, RunDeleteSimulation);
}

}  // namespace
}  // namespace phalanx::sim
