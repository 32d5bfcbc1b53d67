// Random worlds of every kind of reduction. The checks are those of reduce_plan_world.h.
#include "src/directory/reductions/tree_plan/testing/reduce_plan_world.h"

#include "gtest/gtest.h"
#include "src/common/testing/seed.h"
#include "src/directory/reductions/tree_plan/testing/reduce_plan_random.h"

namespace phalanx::directory {
namespace {

TEST(ReducePlanWorldTest, EveryRandomWorldEndsWithTheRightResult) {
  const uint64_t first = phalanx::testing::TestSeed(1);
  const uint64_t last = phalanx::testing::SeedGiven() ? first : first + 9999;
  for (uint64_t seed = first; seed <= last; ++seed) {
    PHALANX_TRACE_SEED(seed);
    const absl::Status status = testing::RunRandomReduction(seed, phalanx::testing::SeedGiven());
    ASSERT_TRUE(status.ok()) << status;
  }
}

}  // namespace
}  // namespace phalanx::directory
