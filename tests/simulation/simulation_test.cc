// Some seeds of the simulation, with every ordinary test run. More by hand: docs/simulation.md.
#include "src/sim/workloads/simulation.h"

#include <cstdint>
#include <cstdlib>

#include "absl/strings/numbers.h"
#include "gtest/gtest.h"
#include "src/common/check.h"
#include "src/common/io/log.h"
#include "src/common/testing/seed.h"
#include "src/sim/cluster/content.h"

namespace phalanx::sim {
namespace {

constexpr uint64_t kSeeds = 200;
constexpr int kSeedsCases = 20;

// The number of seeds, from PHALANX_SEEDS.
uint64_t NumSeeds() {
  const char* text = std::getenv("PHALANX_SEEDS");
  if (text == nullptr) return kSeeds;
  uint64_t seeds = 0;
  PHALANX_CHECK(absl::SimpleAtoi(text, &seeds), "PHALANX_SEEDS is not a number");
  return seeds;
}

void ExpectFine(uint64_t seed) {
  PHALANX_TRACE_SEED(seed);
  const SimulationPlan plan = DrawPlan(seed);
  const SimulationResult result = RunSimulation(plan);
  EXPECT_TRUE(result.status.ok()) << Describe(plan) << "\n" << result.tail << "\n" << result.status;
}

// Several cases, so that the shards of the test split them.
class Simulation : public ::testing::TestWithParam<int> {
 protected:
  void SetUp() override { SetLogLevel(LogLevel::kOff); }
};

TEST_P(Simulation, ComesOutRightWhateverBreaks) {
  if (testing::SeedGiven()) {
    if (GetParam() == 0) ExpectFine(testing::TestSeed());
    return;
  }
  for (uint64_t seed = 1 + static_cast<uint64_t>(GetParam()); seed <= NumSeeds();
       seed += kSeedsCases) {
    ExpectFine(seed);
    if (::testing::Test::HasFailure()) return;
  }
}

INSTANTIATE_TEST_SUITE_P(Seeds, Simulation, ::testing::Range(0, kSeedsCases));

TEST(SimulationRun, IsTheSameAgainFromItsSeed) {
  SetLogLevel(LogLevel::kOff);
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    PHALANX_TRACE_SEED(seed);
    const SimulationResult first = RunSimulation(DrawPlan(seed));
    const SimulationResult second = RunSimulation(DrawPlan(seed));
    EXPECT_EQ(first.trace_hash, second.trace_hash);
    EXPECT_EQ(first.events, second.events);
  }
}

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

TEST(Content, TellsWhichByteIsWrong) {
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
