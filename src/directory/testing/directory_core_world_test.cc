// Random worlds around the core. Its invariants hold at every step. Once the faults stop, every
// node has the objects that it wants, and the shard's list matches the nodes' copies.
#include "src/directory/testing/directory_core_world.h"

#include <cstdint>

#include "gtest/gtest.h"
#include "src/common/testing/seed.h"
#include "src/common/testing/status_matchers.h"

namespace phalanx::directory {
namespace {

using testing::World;

absl::Status RunWorld(const World::Options& options, uint64_t seed) {
  World world(options, seed);
  for (int i = 0; i < 400; ++i) {
    if (absl::Status status = world.Step(); !status.ok()) return status;
  }
  if (absl::Status status = world.Settle(); !status.ok()) return status;
  return world.Check();
}

void RunSeeds(World::Options options, int seeds) {
  options.trace = phalanx::testing::SeedGiven();
  const uint64_t first = phalanx::testing::TestSeed(1);
  for (uint64_t seed = first; seed < first + (phalanx::testing::SeedGiven() ? 1 : seeds); ++seed) {
    PHALANX_TRACE_SEED(seed);
    PHALANX_ASSERT_OK(RunWorld(options, seed));
  }
}

TEST(DirectoryCoreWorldTest, EveryNodeIsServedWhenNothingFails) {
  RunSeeds({.crashes = false, .fencing = false, .shard_restarts = false, .stale_reports = false},
           400);
}

TEST(DirectoryCoreWorldTest, EveryNodeIsServedAfterNodesDie) {
  RunSeeds({.fencing = false, .shard_restarts = false}, 400);
}

TEST(DirectoryCoreWorldTest, EveryNodeIsServedAfterSessionsAreFenced) {
  RunSeeds({.shard_restarts = false}, 400);
}

TEST(DirectoryCoreWorldTest, EveryNodeIsServedAfterTheShardRestarts) { RunSeeds({}, 1500); }

TEST(DirectoryCoreWorldTest, EveryNodeIsServedAroundCuts) {
  RunSeeds({.crashes = false, .cuts = true}, 400);
}

}  // namespace
}  // namespace phalanx::directory
