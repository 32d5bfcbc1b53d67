// Some seeds of simulated lifetimes with every ordinary test run. More by hand: docs/simulation.md.
#include "src/sim/lifetime_simulation.h"

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
  const LifetimePlan plan = DrawLifetimePlan(seed, peace);
  const SimulationResult result = RunLifetimeSimulation(plan);
  EXPECT_TRUE(result.status.ok()) << Describe(plan) << "\n" << result.tail << "\n" << result.status;
  return result;
}

class LifetimeSimulation : public ::testing::TestWithParam<int> {
 protected:
  void SetUp() override { SetLogLevel(LogLevel::kOff); }
};

TEST_P(LifetimeSimulation, WhatIsHeldStaysAndWhatIsNotGoes) {
  if (testing::SeedGiven()) {
    if (GetParam() == 0) ExpectFine(testing::TestSeed(), /*peace=*/false);
    return;
  }
  for (uint64_t seed = 1 + static_cast<uint64_t>(GetParam()); seed <= NumSeeds(); seed += kCases) {
    ExpectFine(seed, /*peace=*/false);
    if (::testing::Test::HasFailure()) return;
  }
}

INSTANTIATE_TEST_SUITE_P(Seeds, LifetimeSimulation, ::testing::Range(0, kCases));

// The checker must have something to check, also while things break.
TEST(LifetimeSimulationRun, MuchIsHeldForSure) {
  SetLogLevel(LogLevel::kOff);
  for (const bool peace : {true, false}) {
    uint64_t objects = 0;
    uint64_t checked = 0;
    for (uint64_t seed = 1; seed <= 20; ++seed) {
      const SimulationResult result = ExpectFine(seed, peace);
      objects += result.operations;
      checked += result.bytes_checked;
    }
    EXPECT_GT(objects, 1000u);
    EXPECT_GT(checked, 100'000u);
  }
}

TEST(LifetimeSimulationRun, IsTheSameAgainFromItsSeed) {
  SetLogLevel(LogLevel::kOff);
  for (uint64_t seed = 1; seed <= 5; ++seed) {
    const SimulationResult first = RunLifetimeSimulation(DrawLifetimePlan(seed));
    const SimulationResult second = RunLifetimeSimulation(DrawLifetimePlan(seed));
    EXPECT_EQ(first.trace_hash, second.trace_hash);
    EXPECT_EQ(first.events, second.events);
  }
}

}  // namespace
}  // namespace phalanx::sim
