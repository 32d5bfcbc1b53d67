// Broadcasts to another zone over a far link that is slow to start, loses packets, and delivers in
// bursts: each zone takes the bytes over it once.
#include <cstdint>

#include "absl/time/time.h"
#include "gtest/gtest.h"
#include "src/common/random.h"
#include "src/common/testing/seed.h"
#include "tests/simulation/coarse_crowd.h"

namespace phalanx::sim {
namespace {

constexpr uint64_t kMiB = 1 << 20;

// Two zones of four nodes. Inside a zone links are ten times as fast as the one between.
CrowdPlan Plan(absl::Duration round_trip, double loss, uint64_t seed) {
  CrowdPlan plan;
  plan.seed = seed;
  plan.size_bytes = 256 * kMiB;
  plan.bytes_per_second = 1.25e9;
  plan.zones = 2;
  plan.far = {.latency = round_trip / 2, .loss = loss};
  return plan;
}

TEST(FarBroadcastTest, TheBytesCrossOnce) {
  for (const int milliseconds : {43, 58, 145}) {
    for (const double inside : {125e6, 1.25e9}) {
      for (const double loss : {0.0, 0.007, 0.05}) {
        for (uint64_t seed = 1; seed <= 3; ++seed) {
          PHALANX_TRACE_SEED(seed);
          CrowdPlan plan = Plan(absl::Milliseconds(milliseconds), loss, seed);
          plan.bytes_per_second = inside;
          CoarseCrowd crowd(plan);
          for (int i = 0; i < 3; ++i) {
            crowd.BroadcastFrom(1);
            EXPECT_LE(crowd.crossed(), 1.1) << milliseconds << " ms, loss " << loss;
          }
        }
      }
    }
  }
}

TEST(FarBroadcastTest, ReceiversThatAskLaterTakeTheBytesFromTheirZone) {
  for (const int milliseconds : {43, 145}) {
    for (const double inside : {125e6, 1.25e9}) {
      for (uint64_t seed = 1; seed <= 5; ++seed) {
        PHALANX_TRACE_SEED(seed);
        CrowdPlan plan = Plan(absl::Milliseconds(milliseconds), 0.007, seed);
        plan.bytes_per_second = inside;
        Random random(seed);
        for (int n = 0; n < plan.nodes; ++n) {
          plan.ask_at.push_back(absl::Milliseconds(1 + random.Below(1500)));
        }
        CoarseCrowd crowd(plan);
        for (int i = 0; i < 3; ++i) {
          crowd.BroadcastFrom(1);
          EXPECT_LE(crowd.crossed(), 1.1) << milliseconds << " ms";
        }
      }
    }
  }
}

// With packets of 9000 bytes, 0.7 % of the hops is 0.1 % of the packets. The bytes alone take
// 2.15 s, and a new connection needs seven round trips until it fills the link.
TEST(FarBroadcastTest, TheFarLinkIsTheLimit) {
  for (uint64_t seed = 1; seed <= 5; ++seed) {
    PHALANX_TRACE_SEED(seed);
    const CrowdPlan plan = Plan(absl::Milliseconds(145), 0.007, seed);
    CoarseCrowd crowd(plan);
    for (int i = 0; i < 3; ++i) {
      EXPECT_LE(crowd.BroadcastFrom(1), absl::Milliseconds(4000));
      EXPECT_EQ(crowd.moves(), 0u);
    }
  }
}

TEST(FarBroadcastTest, ANodeThatStopsWhileItsZoneReceivesThroughItIsReplaced) {
  for (uint64_t seed = 1; seed <= 5; ++seed) {
    PHALANX_TRACE_SEED(seed);
    CrowdPlan plan = Plan(absl::Milliseconds(145), 0.007, seed);
    for (int n = 0; n < plan.nodes; ++n) plan.ask_at.push_back(absl::Milliseconds(n == 4 ? 1 : 2));
    CoarseCrowd crowd(plan);
    crowd.BroadcastFrom(1);
    crowd.SetChanges({{.node = 4, .lasts = absl::Seconds(20)}});
    crowd.BroadcastFrom(1);
    for (const int node : {5, 6, 7}) EXPECT_LE(crowd.finished(node), absl::Seconds(7));
    EXPECT_GE(crowd.finished(4), absl::Seconds(20));
    EXPECT_LE(crowd.crossed(), 1.7);
  }
}

}  // namespace
}  // namespace phalanx::sim
