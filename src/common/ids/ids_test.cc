#include "src/common/ids/ids.h"

#include "absl/hash/hash_testing.h"
#include "gtest/gtest.h"
#include "src/common/time/instant.h"

namespace phalanx {
namespace {

TEST(IdsTest, LaterIncarnationsOfANodeCompareGreater) {
  EXPECT_LT((NodeKey{7, 1}), (NodeKey{7, 2}));
  EXPECT_LT((NodeKey{7, 9}), (NodeKey{8, 1}));
  EXPECT_FALSE(NodeKey().valid());
}

TEST(IdsTest, PrintShortForms) {
  const NodeKey node{0x9f2c001100000000, 0xabc5d1e};
  EXPECT_EQ(node.ToString(), "9f2c0011.5d1e");
  EXPECT_EQ((Generation{node, 12}).ToString(), "9f2c0011.5d1e#12");
}

TEST(IdsTest, HashLikeTheyCompare) {
  EXPECT_TRUE(absl::VerifyTypeImplementsAbslHashCorrectly(
      {Generation{{1, 2}, 3}, Generation{{1, 3}, 2}, Generation{{2, 1}, 3}, Generation{}}));
}

TEST(InstantTest, AddsAndSubtractsDurations) {
  const Instant t = Instant::FromNanos(5'000'000);
  EXPECT_EQ((t + absl::Milliseconds(2)).nanos(), 7'000'000);
  EXPECT_EQ((t - absl::Milliseconds(2)).nanos(), 3'000'000);
  EXPECT_EQ((t + absl::Milliseconds(2)) - t, absl::Milliseconds(2));
}

TEST(InstantTest, SaturatesAtInfinite) {
  const Instant t = Instant::FromNanos(5);
  EXPECT_TRUE((t + absl::InfiniteDuration()).infinite());
  EXPECT_TRUE((t + absl::Hours(24 * 365 * 1000)).infinite());
  EXPECT_TRUE((Instant::Infinite() + absl::Seconds(1)).infinite());
  EXPECT_TRUE((Instant::Infinite() - absl::Seconds(1)).infinite());
  EXPECT_EQ(Instant::Infinite() - t, absl::InfiniteDuration());
  EXPECT_LT(t, Instant::Infinite());
}

}  // namespace
}  // namespace phalanx
