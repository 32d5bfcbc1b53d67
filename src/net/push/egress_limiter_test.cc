#include "src/net/push/egress_limiter.h"

#include <algorithm>
#include <thread>
#include <vector>

#include "absl/time/time.h"
#include "gtest/gtest.h"

namespace phalanx::net {
namespace {

constexpr double kRate = 1e6;
constexpr size_t kBurst = 1000;

Instant At(absl::Duration t) { return Instant::FromNanos(1'000'000'000) + t; }

TEST(EgressLimiter, WithoutALimitEverythingIsSentAtOnce) {
  EgressLimiter limiter(0);
  EXPECT_FALSE(limiter.limited());
  EXPECT_EQ(limiter.Reserve(At(absl::ZeroDuration()), size_t{1} << 40), At(absl::ZeroDuration()));
}

TEST(EgressLimiter, ABurstIsSentAtOnceAndTheRestAtTheRate) {
  EgressLimiter limiter(kRate, kBurst);
  const Instant now = At(absl::ZeroDuration());
  EXPECT_LE(limiter.Reserve(now, 400), now);
  EXPECT_LE(limiter.Reserve(now, 600), now);
  EXPECT_EQ(limiter.Reserve(now, 100), now + absl::Microseconds(100));
  EXPECT_EQ(limiter.Reserve(now, 100), now + absl::Microseconds(200));
}

TEST(EgressLimiter, AnIdleBucketFillsUpToItsBurst) {
  EgressLimiter limiter(kRate, kBurst);
  limiter.Reserve(At(absl::ZeroDuration()), 5000);
  const Instant later = At(absl::Hours(1));
  EXPECT_LE(limiter.Reserve(later, kBurst), later);
  EXPECT_EQ(limiter.Reserve(later, 1), later + absl::Microseconds(1));
}

TEST(EgressLimiter, AReservationBeyondABurstWaitsForTheRest) {
  EgressLimiter limiter(kRate, kBurst);
  const Instant now = At(absl::ZeroDuration());
  EXPECT_EQ(limiter.Reserve(now, 3000), now + absl::Microseconds(2000));
}

TEST(EgressLimiter, ManyThreadsTogetherGetTheRateToTheByte) {
  EgressLimiter limiter(kRate, kBurst);
  const Instant now = At(absl::ZeroDuration());
  constexpr int kThreads = 4;
  constexpr int kReservations = 10'000;
  std::vector<Instant> last(kThreads);
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&limiter, &last, now, t] {
      for (int i = 0; i < kReservations; ++i) {
        last[static_cast<size_t>(t)] = limiter.Reserve(now, 10);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  const absl::Duration all = absl::Microseconds(kThreads * kReservations * 10);
  EXPECT_EQ(*std::max_element(last.begin(), last.end()), now + all - absl::Microseconds(kBurst));
}

}  // namespace
}  // namespace phalanx::net
