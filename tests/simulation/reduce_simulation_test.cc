// Some seeds of simulated reductions, with every ordinary test run. More by hand:
// docs/simulation.md.
#include "src/sim/workloads/reduce_simulation.h"

#include <cstdint>

#include "gtest/gtest.h"
#include "src/common/defects.h"
#include "src/common/io/log.h"
#include "src/common/testing/scoped_defect.h"
#include "tests/simulation/seeds.h"

namespace phalanx::sim {
namespace {

SimulationResult ExpectSeedFine(uint64_t seed, bool peace) {
  return ExpectFine(DrawReducePlan(seed, peace), RunReduceSimulation);
}

using ReduceSimulation = SeedsTest;

TEST_P(ReduceSimulation, EndsCorrectlyUnderRandomFaults) {
  ExpectSeedsFine(GetParam(), DrawReducePlan, RunReduceSimulation);
}

INSTANTIATE_TEST_SUITE_P(Seeds, ReduceSimulation, ::testing::Range(0, kCases));

// Each of these seeds found one of these bugs: two results of one reduction, a missing addition, a
// wait for a lost result.
TEST(ReduceSimulationRun, PassesSeedsThatHaveFoundBugs) {
  for (const uint64_t seed : {805, 1010, 1213, 1472, 1756, 9335, 60236}) {
    ReducePlanOfRun plan = DrawReducePlan(seed);
    // There was no such order then.
    plan.rings = 0;
    ExpectFine(plan, RunReduceSimulation);
  }
}

// A deadline that passed while its caller was out of contact, before the shard heard of a caller
// with a later one; and a result that was replaced while the only node that had it was out of
// contact.
TEST(ReduceSimulationRun, PassesSeedsOfAdditionsThatHaveFoundBugs) {
  for (const uint64_t seed : {5348, 5382}) {
    ExpectFine(FocusOnAdditions(DrawReducePlan(seed)), RunReduceSimulation);
  }
}

// A repeated addition that was acknowledged although its reduction had ended with an error; and a
// refusal of an earlier Want that ended the Get of a later one.
TEST(ReduceSimulationRun, PassesSeedsOfClientsThatHaveFoundBugs) {
  for (const uint64_t seed : {200425, 201968, 202200, 202473}) {
    ExpectFine(FocusOnClients(DrawReducePlan(seed)), RunReduceSimulation);
  }
}

TEST(ReduceSimulationRun, OpenReductionsEndWithTheirClients) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    ExpectFine(FocusOnClients(DrawReducePlan(seed)), RunReduceSimulation);
  }
}

TEST(ReduceSimulationRun, SlotsThatMoveGiveTheSameResult) {
  for (uint64_t seed = 1; seed <= 40; ++seed) {
    ExpectFine(FocusOnMoves(DrawReducePlan(seed)), RunReduceSimulation);
  }
}

TEST(ReduceSimulationRun, FoldsOnlySourcesOfTheMetadataThatIsAskedFor) {
  for (uint64_t seed = 1; seed <= 30; ++seed) {
    ReducePlanOfRun plan = DrawReducePlan(seed);
    plan.alike = true;
    ExpectFine(plan, RunReduceSimulation);
  }
}

TEST(ReduceSimulationRun, ADeadClientThatHoldsAReductionOpenIsNoticed) {
  SetLogLevel(LogLevel::kOff);
  const testing::ScopedDefect on(Defect::kDeadClientHolds);
  uint64_t seed = 1;
  while (seed <= 20 && RunReduceSimulation(FocusOnClients(DrawReducePlan(seed))).status.ok())
    ++seed;
  EXPECT_LE(seed, 20u);
}

TEST(ReduceSimulationRun, EachTargetHasOneResultWithoutFaults) {
  SetLogLevel(LogLevel::kOff);
  uint64_t reductions = 0;
  uint64_t bytes = 0;
  uint64_t from_rings = 0;
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    const SimulationResult result = ExpectSeedFine(seed, /*peace=*/true);
    from_rings += result.from_rings;
    reductions += result.operations;
    bytes += result.bytes_checked;
  }
  EXPECT_GT(reductions, 200u);
  EXPECT_GT(bytes, 1'000'000u);
  EXPECT_GT(from_rings, 20u);
}

// With faults too: rings make some of the results during the storms.
TEST(ReduceSimulationRun, RingsEndDuringStorms) {
  SetLogLevel(LogLevel::kOff);
  uint64_t from_rings = 0;
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    from_rings += ExpectSeedFine(seed, /*peace=*/false).from_rings;
  }
  EXPECT_GT(from_rings, 5u);
}

TEST(ReduceSimulationRun, ReplaysExactlyFromItsSeed) {
  ExpectReplay(DrawReducePlan, RunReduceSimulation);
}

}  // namespace
}  // namespace phalanx::sim
