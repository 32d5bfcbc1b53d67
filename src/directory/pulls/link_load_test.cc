#include "src/directory/pulls/link_load.h"

#include <algorithm>
#include <cstdint>
#include <vector>

#include "absl/time/time.h"
#include "gtest/gtest.h"
#include "src/common/random.h"
#include "src/common/testing/seed.h"

namespace phalanx::directory {
namespace {

Instant At(int second) { return Instant::FromNanos(0) + absl::Seconds(second); }

TEST(LinkLoadTest, APullThatEndedAloneWasNotAloneAllTheTime) {
  LinkLoad load;
  load.Begin();
  load.Begin();
  load.Begin();
  EXPECT_EQ(load.PeakSince(At(0)), 3);
  load.End(At(5));
  load.End(At(7));
  EXPECT_EQ(load.count(), 1);
  EXPECT_EQ(load.PeakSince(At(0)), 3);
  EXPECT_EQ(load.PeakSince(At(6)), 2);
  EXPECT_EQ(load.PeakSince(At(8)), 1);
  load.End(At(9));
  EXPECT_TRUE(load.idle());
}

TEST(LinkLoadTest, IsTheMostOfAnyMomentSince) {
  const uint64_t seed = testing::TestSeed();
  PHALANX_TRACE_SEED(seed);
  Random random(seed);
  for (int world = 0; world < 200; ++world) {
    LinkLoad load;
    std::vector<int> most_in_second = {1};
    load.Begin();  // the pull in question
    for (int second = 1; second < 60; ++second) {
      int most = load.count();
      for (uint64_t steps = random.Below(4); steps > 0; --steps) {
        if (load.count() > 1 && random.Below(2) == 0) {
          load.End(At(second));
        } else {
          load.Begin();
        }
        most = std::max(most, load.count());
      }
      most_in_second.push_back(most);
      const int since = static_cast<int>(random.Below(second + 1));
      const int expected = *std::max_element(most_in_second.begin() + since, most_in_second.end());
      ASSERT_EQ(load.PeakSince(At(since)), expected) << "second " << second << " from " << since;
    }
  }
}

}  // namespace
}  // namespace phalanx::directory
