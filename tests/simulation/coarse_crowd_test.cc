// Many simultaneous broadcasts: no link should carry much more than the minimum of the busiest
// link, and measurements of shared links must not mislead later pulls.
#include "tests/simulation/coarse_crowd.h"

#include <cstdint>

#include "absl/time/time.h"
#include "gtest/gtest.h"
#include "src/common/testing/seed.h"

namespace phalanx::sim {
namespace {

constexpr uint64_t kSeeds = 10;

// Returns the time as a multiple of the time of one object on a link.
double Rounds(CoarseCrowd& crowd, const CrowdPlan& plan, int sources) {
  const double once = static_cast<double>(plan.size_bytes) / plan.bytes_per_second;
  return absl::ToDoubleSeconds(crowd.BroadcastFrom(sources)) / once;
}

TEST(CoarseCrowdTest, EightObjectsAtOnceTakeLittleMoreThanTheBusiestLinkNeeds) {
  double sum = 0;
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    PHALANX_TRACE_SEED(seed);
    CrowdPlan plan;
    plan.seed = seed;
    CoarseCrowd crowd(plan);
    Rounds(crowd, plan, 1);  // so that the shard has measured links
    const double ratio = Rounds(crowd, plan, plan.nodes) / (plan.nodes - 1);
    EXPECT_LE(ratio, 1.13) << crowd.most_sent() << " sent by one node, depth " << crowd.depth();
    sum += ratio;
  }
  EXPECT_LE(sum / kSeeds, 1.08);
}

TEST(CoarseCrowdTest, ABroadcastAfterACrowdIsAChainAsBefore) {
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    PHALANX_TRACE_SEED(seed);
    CrowdPlan plan;
    plan.seed = seed;
    CoarseCrowd crowd(plan);
    Rounds(crowd, plan, plan.nodes);  // without earlier measurements
    const double before = Rounds(crowd, plan, 1);
    EXPECT_LE(before, 1.05);
    Rounds(crowd, plan, plan.nodes);
    Rounds(crowd, plan, plan.nodes / 2);
    EXPECT_LE(Rounds(crowd, plan, 1), 1.01 * before);
    EXPECT_EQ(crowd.depth(), plan.nodes - 1);
  }
}

}  // namespace
}  // namespace phalanx::sim
