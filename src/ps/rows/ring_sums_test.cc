#include "src/ps/rows/ring_sums.h"

#include <cstdint>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace phalanx::ps::internal {
namespace {

using ::testing::ElementsAre;

constexpr uint64_t kMiB = 1 << 20;

TableSpec Spec() { return {.name = "t", .keys = 8 * kMiB, .update = Update::kSum}; }

TEST(RingSums, TakesSumsOfLargePartsThatNoDeathChanges) {
  EXPECT_TRUE(SumsInRing(Spec(), 2 * kMiB, 7));
  EXPECT_FALSE(SumsInRing(Spec(), 2 * kMiB - 1, 7)) << "a slice is too small";
  EXPECT_TRUE(SumsInRing(Spec(), 64 * kMiB, 63));
  EXPECT_FALSE(SumsInRing(Spec(), 65 * kMiB, 64)) << "an object has no more slices";
  TableSpec other = Spec();
  other.update = Update::kSgd;
  EXPECT_FALSE(SumsInRing(other, 32 * kMiB, 7));
  other = Spec();
  other.on_loss = OnLoss::kDrop;
  EXPECT_FALSE(SumsInRing(other, 32 * kMiB, 7)) << "what is answered before its end could change";
  other = Spec();
  other.sync = Sync::kSsp;
  EXPECT_FALSE(SumsInRing(other, 32 * kMiB, 7));
}

TEST(RingSums, TakesTurnsOfTwoPushesAtLeast) {
  EXPECT_FALSE(IsRingSum(kMiB, 2)) << "the rows, and one push";
  EXPECT_TRUE(IsRingSum(kMiB, 3));
  EXPECT_TRUE(IsRingSum(kMiB, 64));
  EXPECT_FALSE(IsRingSum(kMiB, 65));
  EXPECT_FALSE(IsRingSum(3 * 64 - 1, 3));
}

TEST(RingSums, SlicesBeginAtTheNextSourceAndEndAtTheirOwn) {
  const std::vector<RingSlice> slices = RingSlices(1000, 3);
  ASSERT_EQ(slices.size(), 3u);
  EXPECT_THAT(slices[0].sources, ElementsAre(1, 2, 0));
  EXPECT_THAT(slices[1].sources, ElementsAre(2, 0, 1));
  EXPECT_THAT(slices[2].sources, ElementsAre(0, 1, 2));
  uint64_t end = 0;
  for (const RingSlice& slice : slices) {
    EXPECT_EQ(slice.begin, end);
    EXPECT_EQ(slice.begin % 64, 0u);
    end += slice.bytes;
  }
  EXPECT_EQ(end, 1000u);
}

}  // namespace
}  // namespace phalanx::ps::internal
