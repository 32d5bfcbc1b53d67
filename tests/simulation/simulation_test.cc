// Some seeds of the simulation, with every ordinary test run. More by hand: docs/simulation.md.
#include "src/sim/workloads/simulation.h"

#include <cstdint>
#include <optional>
#include <string>

#include "gtest/gtest.h"
#include "src/common/io/log.h"
#include "src/sim/cluster/content.h"
#include "tests/simulation/seeds.h"

namespace phalanx::sim {
namespace {

// With faults unless the seed draws a run without.
SimulationPlan Draw(uint64_t seed, bool /*peace*/) { return DrawPlan(seed); }

using Simulation = SeedsTest;

TEST_P(Simulation, EndsCorrectlyUnderRandomFaults) {
  ExpectSeedsFine(GetParam(), Draw, RunSimulation);
}

INSTANTIATE_TEST_SUITE_P(Seeds, Simulation, ::testing::Range(0, kCases));

TEST(SimulationRun, ReplaysExactlyFromItsSeed) { ExpectReplay(Draw, RunSimulation, /*seeds=*/20); }

TEST(SimulationRun, DiffersFromSeedToSeed) {
  SetLogLevel(LogLevel::kOff);
  EXPECT_NE(RunSimulation(DrawPlan(1)).trace_hash, RunSimulation(DrawPlan(2)).trace_hash);
}

TEST(SimulationRun, DoesSomething) {
  SetLogLevel(LogLevel::kOff);
  const SimulationResult result = RunSimulation(DrawPlan(1));
  EXPECT_GT(result.operations, 100u);
  EXPECT_GT(result.bytes_checked, 1'000'000u);
  EXPECT_GT(result.events, 1'000u);
}

TEST(Content, FindsTheWrongByte) {
  std::string bytes = ContentOf(7, 1000);
  EXPECT_EQ(FirstWrongByte(7, 0, bytes), std::nullopt);
  EXPECT_EQ(FirstWrongByte(7, 13, absl::MakeConstSpan(bytes).subspan(13, 500)), std::nullopt);
  bytes[567] ^= 1;
  EXPECT_EQ(FirstWrongByte(7, 0, bytes), 567u);
  EXPECT_EQ(FirstWrongByte(7, 501, absl::MakeConstSpan(bytes).subspan(501)), 567u);
}

TEST(Content, DiffersBetweenAttemptsAndWhenShifted) {
  const std::string bytes = ContentOf(7, 1000);
  EXPECT_NE(FirstWrongByte(8, 0, bytes), std::nullopt);
  EXPECT_NE(FirstWrongByte(7, 1, bytes), std::nullopt);
}

}  // namespace
}  // namespace phalanx::sim
