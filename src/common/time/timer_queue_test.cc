#include "src/common/time/timer_queue.h"

#include <map>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "src/common/random.h"
#include "src/common/testing/seed.h"

namespace phalanx {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

Instant At(int64_t nanos) { return Instant::FromNanos(nanos); }
Task Nothing() {
  return [] {};
}

std::vector<TimerId> Due(TimerQueue& timers, int64_t now) {
  std::vector<TimerId> due;
  timers.CollectDue(At(now), due);
  return due;
}

TEST(TimerQueueTest, CollectsInOrderOfTimeThenId) {
  TimerQueue timers;
  const TimerId late = timers.Add(At(30), Nothing());
  const TimerId first = timers.Add(At(10), Nothing());
  const TimerId second = timers.Add(At(10), Nothing());
  EXPECT_EQ(timers.Next(), At(10));
  EXPECT_THAT(Due(timers, 9), IsEmpty());
  EXPECT_THAT(Due(timers, 10), ElementsAre(first, second));
  EXPECT_TRUE(timers.Take(first) != nullptr);
  EXPECT_TRUE(timers.Cancel(second) != nullptr);
  EXPECT_TRUE(timers.Take(second) == nullptr) << "cancelled after it was collected";
  EXPECT_EQ(timers.Next(), At(30));
  EXPECT_THAT(Due(timers, 40), ElementsAre(late));
}

TEST(TimerQueueTest, InfiniteIsNeverDue) {
  TimerQueue timers;
  timers.Add(Instant::Infinite(), Nothing());
  std::vector<TimerId> due;
  timers.CollectDue(Instant::Infinite(), due);
  EXPECT_THAT(due, IsEmpty());
  EXPECT_FALSE(timers.empty());
  EXPECT_EQ(timers.Clear().size(), 1u);
  EXPECT_TRUE(timers.empty());
}

TEST(TimerQueueTest, AgreesWithAnOrderedMapUnderRandomUse) {
  const uint64_t seed = testing::TestSeed();
  PHALANX_TRACE_SEED(seed);
  Random random(seed);
  TimerQueue timers;
  std::map<std::pair<Instant, TimerId>, TimerId> model;
  int64_t now = 0;
  for (int step = 0; step < 20'000; ++step) {
    if (random.Chance(0.6)) {
      const Instant when = At(now + static_cast<int64_t>(random.Below(1000)));
      const TimerId id = timers.Add(when, Nothing());
      model.emplace(std::make_pair(when, id), id);
    } else if (random.Chance(0.9) && !model.empty()) {
      auto it = std::next(model.begin(),
                          static_cast<int64_t>(random.Below(std::min<size_t>(model.size(), 20))));
      EXPECT_TRUE(timers.Cancel(it->second) != nullptr);
      model.erase(it);
    } else {
      now += static_cast<int64_t>(random.Below(300));
      std::vector<TimerId> expected;
      while (!model.empty() && model.begin()->first.first <= At(now)) {
        expected.push_back(model.begin()->second);
        model.erase(model.begin());
      }
      ASSERT_EQ(Due(timers, now), expected);
      for (const TimerId id : expected) timers.Take(id);
    }
    ASSERT_EQ(timers.Next(), model.empty() ? Instant::Infinite() : model.begin()->first.first);
  }
}

}  // namespace
}  // namespace phalanx
