// Some seeds of simulated broadcasts with every ordinary test run. More by hand:
// docs/simulation.md.
#include "src/sim/broadcast_simulation.h"

#include <cstdint>
#include <cstdlib>

#include "absl/strings/numbers.h"
#include "gtest/gtest.h"
#include "src/common/log.h"
#include "src/common/testing/seed.h"

namespace phalanx::sim {
namespace {

constexpr uint64_t kSeeds = 200;
constexpr int kCases = 20;

uint64_t NumSeeds() {
  const char* text = std::getenv("PHALANX_SEEDS");
  uint64_t seeds = kSeeds;
  return text != nullptr && absl::SimpleAtoi(text, &seeds) ? seeds : kSeeds;
}

SimulationResult ExpectFine(uint64_t seed, bool peace) {
  PHALANX_TRACE_SEED(seed);
  const BroadcastPlan plan = DrawBroadcastPlan(seed, peace);
  const SimulationResult result = RunBroadcastSimulation(plan);
  EXPECT_TRUE(result.status.ok()) << Describe(plan) << "\n" << result.tail << "\n" << result.status;
  return result;
}

class BroadcastSimulation : public ::testing::TestWithParam<int> {
 protected:
  void SetUp() override { SetLogLevel(LogLevel::kOff); }
};

TEST_P(BroadcastSimulation, EachNodeGetsWhatIsSticky) {
  if (testing::SeedGiven()) {
    if (GetParam() == 0) ExpectFine(testing::TestSeed(), /*peace=*/false);
    return;
  }
  for (uint64_t seed = 1 + static_cast<uint64_t>(GetParam()); seed <= NumSeeds(); seed += kCases) {
    ExpectFine(seed, /*peace=*/false);
    if (::testing::Test::HasFailure()) return;
  }
}

INSTANTIATE_TEST_SUITE_P(Seeds, BroadcastSimulation, ::testing::Range(0, kCases));

// The checker must have something to check, also while things break.
TEST(BroadcastSimulationRun, MuchIsBroadcast) {
  SetLogLevel(LogLevel::kOff);
  for (const bool peace : {true, false}) {
    uint64_t answered = 0;
    uint64_t checked = 0;
    for (uint64_t seed = 1; seed <= 20; ++seed) {
      const SimulationResult result = ExpectFine(seed, peace);
      answered += result.operations;
      checked += result.bytes_checked;
    }
    EXPECT_GT(answered, 500u);
    EXPECT_GT(checked, 1000u);
  }
}

TEST(BroadcastSimulationRun, IsTheSameAgainFromItsSeed) {
  SetLogLevel(LogLevel::kOff);
  for (uint64_t seed = 1; seed <= 5; ++seed) {
    const SimulationResult first = RunBroadcastSimulation(DrawBroadcastPlan(seed));
    const SimulationResult second = RunBroadcastSimulation(DrawBroadcastPlan(seed));
    EXPECT_EQ(first.trace_hash, second.trace_hash);
    EXPECT_EQ(first.events, second.events);
  }
}

}  // namespace
}  // namespace phalanx::sim
