#include "src/directory/reductions/ring_plan/measured_costs.h"

#include "gtest/gtest.h"

namespace phalanx::directory {
namespace {

Endpoint Node(uint64_t i) { return Endpoint{NodeKey{i, 1}, Locality()}; }

TEST(MeasuredCostsTest, AssumesANetworkOfWhichNothingWasMeasured) {
  const ReduceCosts costs = MeasuredCosts(LinkModel());
  EXPECT_EQ(costs.latency, absl::Microseconds(200));
  EXPECT_EQ(costs.bytes_per_second, 125e6);
  EXPECT_GT(costs.fold_per_second, costs.bytes_per_second);
  EXPECT_GT(costs.segment_bytes, 0u);
  EXPECT_GE(costs.unevenness, 1);
}

TEST(MeasuredCostsTest, ALatencyIsHalfOfALowRoundTripAndTheRateIsTheMedian) {
  LinkModel links;
  const Instant now;
  links.RecordRate(Node(1), Node(2), 1e9, /*sharing=*/1, now);
  links.RecordLatency(Node(1), Node(2), absl::Microseconds(100), now);
  for (uint64_t i = 3; i < 5; ++i) {
    links.RecordLatency(Node(1), Node(i), absl::Milliseconds(9), now);
  }
  const ReduceCosts costs = MeasuredCosts(links);
  EXPECT_EQ(costs.latency, absl::Microseconds(50));
  EXPECT_EQ(costs.bytes_per_second, 1e9);
}

}  // namespace
}  // namespace phalanx::directory
