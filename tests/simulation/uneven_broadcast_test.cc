// Broadcasts over links of different rates, links that change, and nodes that stop: a slow receiver
// holds up no faster one, and no receiver is moved for ever.
#include <algorithm>
#include <cstdint>
#include <vector>

#include "absl/time/time.h"
#include "gtest/gtest.h"
#include "src/common/defects.h"
#include "src/common/random.h"
#include "src/common/testing/scoped_defect.h"
#include "src/common/testing/seed.h"
#include "tests/simulation/coarse_crowd.h"

namespace phalanx::sim {
namespace {

constexpr double kFast = 125e6;  // 1 Gbit/s
constexpr double kSlow = kFast / 10;
constexpr uint64_t kMiB = 1 << 20;
// PullPlanner::kMaxMoves, and some for pulls that crawl.
constexpr uint64_t kMovesEach = 6;

CrowdPlan Plan(int nodes, uint64_t seed = 1) {
  CrowdPlan plan;
  plan.nodes = nodes;
  plan.seed = seed;
  plan.rates.assign(static_cast<size_t>(nodes), kFast);
  return plan;
}

// Node `first` asks first, the others half a millisecond after one another.
std::vector<absl::Duration> AsksFirst(int first, int nodes) {
  std::vector<absl::Duration> ask_at;
  for (int n = 0; n < nodes; ++n) ask_at.push_back(absl::Microseconds(500 * (n + 1)));
  ask_at[static_cast<size_t>(first)] = absl::Microseconds(100);
  return ask_at;
}

// The times of a broadcast from node 0, as multiples of what the bytes take at each node's rate: of
// the slowest of the fast nodes, and of the slowest of the others.
struct Times {
  double fast = 0;
  double slow = 0;
};

Times Broadcast(CoarseCrowd& crowd, const CrowdPlan& plan, int but = 0) {
  crowd.BroadcastFrom(1);
  Times times;
  for (int n = 1; n < plan.nodes; ++n) {
    if (n == but) continue;
    const double rate = plan.rates[static_cast<size_t>(n)];
    const double once = static_cast<double>(plan.size_bytes) / rate;
    double& slowest = rate < kFast ? times.slow : times.fast;
    slowest = std::max(slowest, absl::ToDoubleSeconds(crowd.finished(n)) / once);
  }
  return times;
}

TEST(UnevenBroadcastTest, OverLinksAlikeNoPullIsMoved) {
  for (uint64_t seed = 1; seed <= 10; ++seed) {
    PHALANX_TRACE_SEED(seed);
    const CrowdPlan plan = Plan(8, seed);
    CoarseCrowd crowd(plan);
    for (int i = 0; i < 3; ++i) {
      EXPECT_LE(Broadcast(crowd, plan).fast, 1.05);
      EXPECT_EQ(crowd.moves(), 0u);
    }
  }
}

// Of 5 nodes one has a tenth of the rate, and asks first.
TEST(UnevenBroadcastTest, ASlowReceiverThatAsksFirstIsPassedByWhenNothingWasMeasured) {
  for (int slow = 1; slow < 5; ++slow) {
    CrowdPlan plan = Plan(5);
    plan.rates[static_cast<size_t>(slow)] = kSlow;
    plan.ask_at = AsksFirst(slow, plan.nodes);
    CoarseCrowd crowd(plan);
    const Times times = Broadcast(crowd, plan);
    EXPECT_LE(times.fast, 1.25);
    EXPECT_LE(times.slow, 1.05);
    EXPECT_LE(crowd.moves(), 4u);
  }
}

TEST(UnevenBroadcastTest, ASlowReceiverThatWasMeasuredHoldsUpNoneInAnyOrder) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    PHALANX_TRACE_SEED(seed);
    CrowdPlan plan = Plan(5, seed);
    plan.rates[3] = kSlow;
    CoarseCrowd crowd(plan);
    for (int i = 0; i < 2; ++i) Broadcast(crowd, plan);
    if (seed % 2 == 0) crowd.SetAskAt(AsksFirst(3, plan.nodes));
    for (int i = 0; i < 3; ++i) {
      const Times times = Broadcast(crowd, plan);
      EXPECT_LE(times.fast, 1.1);
      EXPECT_LE(times.slow, 1.05);
      EXPECT_LE(crowd.moves(), kMovesEach);
    }
  }
}

TEST(UnevenBroadcastTest, ANodeWhoseLinkBecomesSlowHalfWayHoldsUpNone) {
  for (int node = 1; node < 8; ++node) {
    CrowdPlan plan = Plan(8);
    CoarseCrowd crowd(plan);
    Broadcast(crowd, plan);
    crowd.SetChanges({{.node = node, .bytes_per_second = kFast / 20}});
    EXPECT_LE(Broadcast(crowd, plan, node).fast, 1.25) << "node " << node;
    EXPECT_LE(crowd.moves(), 3 * kMovesEach);
    for (int n = 1; n < 8; ++n) EXPECT_LE(crowd.bytes_twice(n), kMiB);
  }
}

TEST(UnevenBroadcastTest, ARelayThatStopsIsLeftAtOnce) {
  for (uint64_t seed = 1; seed <= 10; ++seed) {
    PHALANX_TRACE_SEED(seed);
    CrowdPlan plan = Plan(8, seed);
    CoarseCrowd crowd(plan);
    Broadcast(crowd, plan);
    crowd.SetChanges({{.lasts = absl::Seconds(3)}});
    crowd.BroadcastFrom(1);
    std::vector<absl::Duration> finished;
    for (int n = 1; n < 8; ++n) {
      finished.push_back(crowd.finished(n));
      EXPECT_LE(crowd.bytes_twice(n), kMiB);
    }
    std::sort(finished.begin(), finished.end());
    const double once = static_cast<double>(plan.size_bytes) / kFast;
    EXPECT_LE(absl::ToDoubleSeconds(finished[5]) / once, 1.35) << "all but the stopped one";
    EXPECT_GE(finished[6], absl::Seconds(3));
    EXPECT_LE(crowd.moves(), kMovesEach);
  }
}

// A pause that is long enough to be noticed costs the others little, and the node itself too.
TEST(UnevenBroadcastTest, ANodeThatOnlyPausedFinishesToo) {
  CrowdPlan plan = Plan(8);
  CoarseCrowd crowd(plan);
  Broadcast(crowd, plan);
  crowd.SetChanges({{.lasts = absl::Milliseconds(80)}});
  EXPECT_LE(Broadcast(crowd, plan).fast, 1.8);
}

// Of 12 nodes three have a twentieth, a tenth and less than a third of the rate. All ask within
// 10 ms, in an order of its own in every broadcast.
Times ThreeSlowOfTwelve(uint64_t seed, int broadcasts) {
  Random random(seed);
  CrowdPlan plan = Plan(12, seed);
  for (const double rate : {kFast / 20, kFast / 10, 0.3 * kFast}) {
    const auto slow = [&plan](size_t n) { return plan.rates[n] < kFast; };
    size_t node = 1 + random.Below(11);
    while (slow(node)) node = 1 + random.Below(11);
    plan.rates[node] = rate;
  }
  CoarseCrowd crowd(plan);
  Times times;
  for (int i = 0; i < broadcasts; ++i) {
    std::vector<absl::Duration> ask_at;
    for (int n = 0; n < plan.nodes; ++n) {
      ask_at.push_back(absl::Microseconds(100 + random.Below(10000)));
    }
    crowd.SetAskAt(ask_at);
    times = Broadcast(crowd, plan);
    EXPECT_LE(crowd.moves(), 12u);
  }
  return times;
}

TEST(UnevenBroadcastTest, ThreeSlowNodesOfTwelveThatWereMeasuredHoldUpNone) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    PHALANX_TRACE_SEED(seed);
    const Times times = ThreeSlowOfTwelve(seed, 5);
    EXPECT_LE(times.fast, 1.08);
    EXPECT_LE(times.slow, 1.1);
  }
}

TEST(UnevenBroadcastTest, ThreeSlowNodesOfTwelveAreFoundInTheFirstBroadcast) {
  double sum = 0;
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    PHALANX_TRACE_SEED(seed);
    const Times times = ThreeSlowOfTwelve(seed, 1);
    EXPECT_LE(times.fast, 3);
    EXPECT_LE(times.slow, 1.5);
    sum += times.fast;
  }
  EXPECT_LE(sum / 20, 2) << "20 without moves: the slowest node feeds others";
}

// The times of the fast nodes in three broadcasts to a thousand nodes.
std::vector<double> LargeBroadcasts(double slow_share, uint64_t seed) {
  CrowdPlan plan = Plan(1000, seed);
  plan.hop_bytes = 128 << 10;
  plan.relay_bytes = plan.hop_bytes;
  Random random(seed);
  for (int n = 1; n < plan.nodes; ++n) {
    if (random.Chance(slow_share)) plan.rates[static_cast<size_t>(n)] = kSlow;
  }
  CoarseCrowd crowd(plan);
  std::vector<double> times;
  for (int i = 0; i < 3; ++i) {
    times.push_back(Broadcast(crowd, plan).fast);
    // With links alike, no report moves a pull.
    EXPECT_LE(crowd.moves(), slow_share == 0 ? 0u : 200u);
  }
  return times;
}

TEST(UnevenBroadcastTest, NothingMovesInAChainOfAThousandNodesAlike) {
  // The shard plans for hops of 16 KiB, a chain; in hops of 128 KiB it has reports of every kind.
  CrowdPlan plan = Plan(1000, 1);
  plan.hop_bytes = 128 << 10;
  CoarseCrowd crowd(plan);
  for (int i = 0; i < 2; ++i) {
    EXPECT_GT(Broadcast(crowd, plan).fast, 4) << "no chain";
    EXPECT_EQ(crowd.moves(), 0u);
  }
}

TEST(UnevenBroadcastTest, OneInTwentyOfAThousandNodesCostsTheOthersATenth) {
  const std::vector<double> alike = LargeBroadcasts(0, 1);
  const double even = alike.back();
  EXPECT_LE(*std::max_element(alike.begin(), alike.end()), 4.2);
  for (uint64_t seed = 1; seed <= 2; ++seed) {
    PHALANX_TRACE_SEED(seed);
    const std::vector<double> times = LargeBroadcasts(0.05, seed);
    EXPECT_LE(times.front(), 5) << "nothing was measured";
    EXPECT_LE(times.back(), 1.1 * even);
  }
}

// Everything at once: every node gets every byte, and the moves are few.
struct Wild {
  uint64_t most_moves = 0;
  uint64_t most_twice = 0;
};

Wild RunWild(uint64_t seed) {
  Random random(seed);
  CrowdPlan plan = Plan(static_cast<int>(3 + random.Below(12)), seed);
  plan.size_bytes = (1 + random.Below(64)) * kMiB;
  for (double& rate : plan.rates) rate = kFast / (1 + static_cast<double>(random.Below(30)));
  CoarseCrowd crowd(plan);
  Wild wild;
  for (int i = 0; i < 4; ++i) {
    std::vector<CrowdChange> changes;
    for (uint64_t c = random.Below(5); c > 0; --c) {
      CrowdChange change;
      change.node = static_cast<int>(1 + random.Below(static_cast<uint64_t>(plan.nodes) - 1));
      change.at_share = 0.1 * static_cast<double>(random.Below(10));
      if (random.Chance(0.6)) change.bytes_per_second = kFast / (1 + random.Below(50));
      change.lasts = absl::Milliseconds(10 + random.Below(2000));
      changes.push_back(change);
    }
    crowd.SetChanges(changes);
    crowd.BroadcastFrom(1);
    const auto receivers = static_cast<uint64_t>(plan.nodes) - 1;
    wild.most_moves = std::max(wild.most_moves, crowd.moves() / receivers);
    for (int n = 1; n < plan.nodes; ++n) {
      wild.most_twice = std::max(wild.most_twice, crowd.bytes_twice(n));
    }
  }
  return wild;
}

TEST(UnevenBroadcastTest, NoReceiverIsMovedForEver) {
  for (uint64_t seed = 1; seed <= 100; ++seed) {
    PHALANX_TRACE_SEED(seed);
    const Wild wild = RunWild(seed);
    EXPECT_LE(wild.most_moves, kMovesEach);
    EXPECT_LE(wild.most_twice, kMovesEach * kMiB);
  }
}

TEST(UnevenBroadcastTest, MovingBackAndForthIsDetected) {
  const testing::ScopedDefect on(Defect::kMoveBackAndForth);
  uint64_t most = 0;
  for (uint64_t seed = 1; seed <= 20; ++seed) most = std::max(most, RunWild(seed).most_moves);
  EXPECT_GT(most, kMovesEach);
}

}  // namespace
}  // namespace phalanx::sim
