// Broadcasts to thousands of receivers compared with closed forms: TreeTime in coarse_broadcast.h,
// after the Hoplite paper (SIGCOMM 2021, section 3.3 and the model of section 4), plus the cost of
// a hop on the way. Larger worlds are run by hand (broadcast_scale).
#include <algorithm>
#include <cstdint>
#include <ostream>
#include <string>

#include "absl/time/time.h"
#include "gtest/gtest.h"
#include "tests/simulation/coarse_broadcast.h"

namespace phalanx::sim {
namespace {

constexpr uint64_t kMiB = 1 << 20;

double Ratio(absl::Duration a, absl::Duration b) { return absl::FDivDuration(a, b); }

double PerGet(uint64_t count, const CoarsePlan& plan) {
  return static_cast<double>(count) / plan.receivers;
}

struct Case {
  const char* name;
  CoarsePlan plan;
};

void PrintTo(const Case& c, std::ostream* out) { *out << c.name; }

CoarsePlan Plan(int receivers, uint64_t size, bool waiting = false) {
  CoarsePlan plan;
  plan.receivers = receivers;
  plan.size_bytes = size;
  plan.waiting = waiting;
  // Hops of the real size would take the test too long.
  if (size >= 64 * kMiB) plan.links.hop_bytes = size / 4096;
  return plan;
}

CoarsePlan InHalves(CoarsePlan plan) {
  plan.slices = 2;
  return plan;
}

// The best time: of two trees, if they are sooner and the object has two slices.
absl::Duration BestTime(const CoarsePlan& plan) {
  const absl::Duration tree = TreeTime(plan.links, plan.receivers, plan.size_bytes, 0);
  if (plan.slices == 1) return tree;
  return std::min(tree, SlicedTime(plan.links, plan.receivers, plan.size_bytes, 2));
}

class BestTree : public ::testing::TestWithParam<Case> {};

TEST_P(BestTree, IsFoundWithinATenth) {
  const CoarsePlan& plan = GetParam().plan;
  const CoarseResult result = RunCoarseBroadcast(plan);
  EXPECT_EQ(result.complete, plan.receivers);
  const absl::Duration best = BestTime(plan);
  EXPECT_LE(Ratio(result.time, best), 1.1)
      << "depth " << result.depth << ", fan-out " << result.fan_out;
  EXPECT_GE(Ratio(result.time, best), 0.9) << "the model is wrong";
}

INSTANTIATE_TEST_SUITE_P(
    Scale, BestTree,
    ::testing::Values(Case{"Hundred1MiBWaiting", Plan(100, kMiB, true)},
                      Case{"Hundred16MiBChain", Plan(100, 16 * kMiB)},
                      Case{"Thousand1MiB", Plan(1000, kMiB)},
                      Case{"Thousand1MiBWaiting", Plan(1000, kMiB, true)},
                      Case{"TenThousand1MiB", Plan(10'000, kMiB)},
                      Case{"TenThousand1MiBWaiting", Plan(10'000, kMiB, true)},
                      Case{"Thousand16MiBWaiting", Plan(1000, 16 * kMiB, true)},
                      Case{"Thousand256MiBChain", Plan(1000, 256 * kMiB)},
                      Case{"Thousand1GiBChain", Plan(1000, 1024 * kMiB)},
                      Case{"TenThousand4MiBWaiting", Plan(10'000, 4 * kMiB, true)},
                      Case{"Hundred16MiBInHalves", InHalves(Plan(100, 16 * kMiB))},
                      Case{"Thousand16MiBInHalves", InHalves(Plan(1000, 16 * kMiB))},
                      Case{"Thousand1GiBInHalves", InHalves(Plan(1000, 1024 * kMiB))},
                      Case{"TenThousand4MiBInHalves", InHalves(Plan(10'000, 4 * kMiB, true))}),
    [](const auto& info) { return std::string(info.param.name); });

// Receivers that arrive one by one first extend the chain as long as this pays, and are not moved
// if a wider tree would be better. This is the price of an unknown number of receivers.
TEST(BroadcastScaleTest, UnannouncedReceiversTakeAtMostAboutHalfMoreThanTheBestTree) {
  for (const int receivers : {100, 300, 1000}) {
    for (const uint64_t mib : {1, 4, 16, 64}) {
      const CoarsePlan plan = Plan(receivers, mib * kMiB);
      const CoarseResult result = RunCoarseBroadcast(plan);
      EXPECT_EQ(result.complete, plan.receivers);
      const absl::Duration best = TreeTime(plan.links, plan.receivers, plan.size_bytes, 0);
      EXPECT_LE(Ratio(result.time, best), 1.55) << receivers << " receivers, " << mib << " MiB";
    }
  }
}

// Before the first measurement the planner assumes a rate and a latency. These links are ten times
// faster.
TEST(BroadcastScaleTest, TheFirstBroadcastOfAClusterTakesAtMostTwiceTheBestTree) {
  for (const bool waiting : {false, true}) {
    for (const int receivers : {10, 100, 1000}) {
      for (const uint64_t kib : {256, 1024, 4096, 16384, 65536}) {
        CoarsePlan plan = Plan(receivers, kib << 10, waiting);
        plan.measured = false;
        const CoarseResult result = RunCoarseBroadcast(plan);
        EXPECT_EQ(result.complete, plan.receivers);
        const absl::Duration best = TreeTime(plan.links, plan.receivers, plan.size_bytes, 0);
        EXPECT_LE(Ratio(result.time, best), 2.05)
            << receivers << " receivers, " << kib << " KiB, depth " << result.depth;
      }
    }
  }
}

TEST(BroadcastScaleTest, TheShardsWorkForAGetIsTheSameForAHundredAndForTenThousand) {
  for (const bool waiting : {false, true}) {
    for (const uint64_t mib : {1, 16}) {
      const auto planned = [&](int receivers) {
        CoarsePlan plan = Plan(receivers, mib * kMiB, waiting);
        plan.links.hop_bytes = mib * kMiB / 16;
        return plan;
      };
      const CoarsePlan few = planned(100);
      const CoarseResult least = RunCoarseBroadcast(few);
      for (const int receivers : {1000, 10'000}) {
        const CoarsePlan plan = planned(receivers);
        const CoarseResult result = RunCoarseBroadcast(plan);
        EXPECT_LE(PerGet(result.examined, plan), 40);
        // A chain compares one load, a tree as many as its senders have receivers.
        EXPECT_LE(PerGet(result.examined, plan), 3 * PerGet(least.examined, few));
        EXPECT_LE(PerGet(result.visited, plan), 3.1);
        EXPECT_LE(PerGet(result.messages, plan), 2.1) << "one question and one report each";
      }
    }
  }
}

// Each node has two pulls, whose loads are compared in two trees.
TEST(BroadcastScaleTest, TwoTreesTakeAboutTwiceTheWorkOfOne) {
  for (const bool waiting : {false, true}) {
    for (const int receivers : {1000, 10'000}) {
      CoarsePlan plan = InHalves(Plan(receivers, 16 * kMiB, waiting));
      plan.links.hop_bytes = kMiB;
      const CoarseResult result = RunCoarseBroadcast(plan);
      EXPECT_LE(PerGet(result.examined, plan), 2 * 42);
      EXPECT_LE(PerGet(result.visited, plan), 2 * 3.1 + 0.5) << "all are moved once";
      EXPECT_LE(PerGet(result.messages, plan), 3.1) << "one question, one report for each pull";
    }
  }
}

class Deaths : public ::testing::TestWithParam<Case> {};

// The nodes below a dead relay lose their root and find it again; in a chain they are as many as
// the depth below it. The core examines no other nodes except candidates for the relay's own
// receivers. (Nodes that an earlier death moved below a later one count there too.)
TEST_P(Deaths, CostAFewVisitsToEachNodeBelow) {
  const CoarsePlan& plan = GetParam().plan;
  const CoarseResult result = RunCoarseBroadcast(plan);
  EXPECT_EQ(result.complete, plan.receivers - plan.relays_killed);
  ASSERT_GT(result.repairs, 0u);
  EXPECT_LE(result.repair_visited, 3 * result.repair_below + 4 * result.repairs);
  EXPECT_LE(result.repair_examined, 40 * result.repairs);
  EXPECT_LE(Ratio(result.time, BestTime(plan)), 1.3);
}

CoarsePlan Killing(int relays, CoarsePlan plan) {
  plan.relays_killed = relays;
  return plan;
}

INSTANTIATE_TEST_SUITE_P(Scale, Deaths,
                         ::testing::Values(Case{"OneInAChain", Killing(1, Plan(1000, 256 * kMiB))},
                                           Case{"TenInAChain", Killing(10, Plan(1000, 256 * kMiB))},
                                           Case{"TenInATree", Killing(10, Plan(1000, kMiB))},
                                           Case{"TenInHalves",
                                                Killing(10, InHalves(Plan(1000, 256 * kMiB)))},
                                           Case{"HundredInATreeOfTenThousand",
                                                Killing(100, Plan(10'000, 4 * kMiB, true))}),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace phalanx::sim
