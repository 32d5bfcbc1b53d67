// Which bytes are there, the order in which a client copies an input, and when it yields.
#include <cstdint>
#include <vector>

#include "gtest/gtest.h"
#include "src/common/testing/status_matchers.h"
#include "src/jobs/overlap/byte_ranges.h"
#include "src/jobs/overlap/fill_order.h"
#include "src/jobs/overlap/result_parts.h"
#include "src/jobs/overlap/yield_rule.h"

namespace phalanx::jobs {
namespace {

using testing::IsOk;
using Ranges = std::vector<ByteRange>;

TEST(ByteRangesTest, AdjacentAndOverlappingRangesBecomeOne) {
  ByteRanges ranges(100);
  EXPECT_THAT(ranges.Add({40, 10}), IsOk());
  EXPECT_THAT(ranges.Add({10, 10}), IsOk());
  EXPECT_EQ(ranges.ranges(), (Ranges{{10, 10}, {40, 10}}));
  EXPECT_EQ(ranges.Rest(), (Ranges{{0, 10}, {20, 20}, {50, 50}}));
  EXPECT_TRUE(ranges.Has({12, 8}));
  EXPECT_FALSE(ranges.Has({12, 9}));
  EXPECT_FALSE(ranges.Has({15, 30}));
  EXPECT_THAT(ranges.Add({20, 25}), IsOk());
  EXPECT_EQ(ranges.ranges(), (Ranges{{10, 40}}));
  EXPECT_THAT(ranges.Add({50, 50}), IsOk());
  EXPECT_FALSE(ranges.complete());
  EXPECT_THAT(ranges.Add({0, 10}), IsOk());
  EXPECT_TRUE(ranges.complete());
  EXPECT_EQ(ranges.Rest(), Ranges());
}

TEST(ByteRangesTest, WhatIsOutsideIsRefusedAndChangesNothing) {
  ByteRanges ranges(100);
  for (const ByteRange& range : Ranges{{0, 101}, {101, 0}, {100, 1}, {~uint64_t{0}, 2}}) {
    EXPECT_TRUE(absl::IsInvalidArgument(ranges.Add(range))) << range.from;
  }
  EXPECT_EQ(ranges.ranges(), Ranges());
  EXPECT_THAT(ranges.Add({100, 0}), IsOk());
  EXPECT_TRUE(ranges.Has({7, 0}));
}

TEST(ByteRangesTest, ARangeThatIsNeitherAdjacentNorFillsAGapIsRefusedBeyondTheLimit) {
  ByteRanges ranges(1000);
  for (uint64_t i = 0; i < kMaxByteRanges; ++i) EXPECT_THAT(ranges.Add({2 * i, 1}), IsOk());
  EXPECT_TRUE(absl::IsInvalidArgument(ranges.Add({500, 1})));
  EXPECT_THAT(ranges.Add({1, 1}), IsOk());
  EXPECT_THAT(ranges.Add({500, 1}), IsOk());
}

Ranges AllOf(FillOrder order) {
  Ranges all;
  for (Ranges slice = order.Next(); !slice.empty(); slice = order.Next()) {
    all.insert(all.end(), slice.begin(), slice.end());
  }
  return all;
}

TEST(FillOrderTest, ARingBeginsWithThePartOfItsNodeAndGoesDown) {
  FillOrder order(CallKind::kAllReduce, 4 * kFirstSliceBytes, 4, 1);
  constexpr uint64_t kPart = kFirstSliceBytes;
  EXPECT_EQ(order.Next(), (Ranges{{kPart, kPart}}));
  EXPECT_EQ(order.Next(), (Ranges{{0, kPart}, {3 * kPart, kPart}}));
  EXPECT_EQ(order.Next(), (Ranges{{2 * kPart, kPart}}));
  EXPECT_EQ(order.Next(), Ranges());
  // Two parts that go down in one slice are one range.
  FillOrder down(CallKind::kAllReduce, 4 * kFirstSliceBytes, 4, 3);
  EXPECT_EQ(down.Next(), (Ranges{{3 * kPart, kPart}}));
  EXPECT_EQ(down.Next(), (Ranges{{kPart, 2 * kPart}}));
}

TEST(FillOrderTest, OtherKindsBeginWhereTheirPlansDo) {
  constexpr uint64_t kPart = kFirstSliceBytes;
  EXPECT_EQ(AllOf({CallKind::kReduceScatter, 2 * kPart, 2, 0}),
            (Ranges{{kPart, kPart}, {0, kPart}}));
  EXPECT_EQ(AllOf({CallKind::kAllToAll, 3 * kPart, 3, 1}),
            (Ranges{{kPart, kPart}, {2 * kPart, kPart}, {0, kPart}}));
  EXPECT_EQ(AllOf({CallKind::kBroadcast, kPart, 8, 3}), (Ranges{{0, kPart}}));
}

TEST(FillOrderTest, EverySliceDoublesAndTogetherTheyAreTheInput) {
  for (const uint64_t bytes :
       {uint64_t{1}, uint64_t{262'144}, uint64_t{1'000'003}, uint64_t{32} << 20}) {
    for (const int nodes : {1, 2, 3, 8, 1000}) {
      for (const CallKind kind : {CallKind::kAllReduce, CallKind::kReduceScatter,
                                  CallKind::kAllToAll, CallKind::kReduce}) {
        ByteRanges there(bytes);
        FillOrder order(kind, bytes, nodes, nodes - 1);
        uint64_t expected = kFirstSliceBytes, sum = 0;
        for (Ranges slice = order.Next(); !slice.empty(); slice = order.Next()) {
          uint64_t slice_bytes = 0;
          for (const ByteRange& range : slice) {
            slice_bytes += range.bytes;
            ASSERT_THAT(there.Add(range), IsOk());
          }
          sum += slice_bytes;
          ASSERT_TRUE(slice_bytes == expected || there.complete());
          expected *= 2;
        }
        EXPECT_TRUE(there.complete());
        EXPECT_EQ(sum, bytes);
      }
    }
  }
}

TEST(ResultPartsTest, AThirdOfWhatIsHiddenIsShownAndTheLastPartIsNot) {
  constexpr uint64_t kLeast = kLeastPartBytes;
  ResultParts parts(12 * kLeast);
  parts.Add({{0, 3 * kLeast}});
  EXPECT_EQ(parts.Take(), Ranges());
  parts.Add({{3 * kLeast, kLeast / 2}, {6 * kLeast, kLeast / 2}});
  EXPECT_EQ(parts.Take(), (Ranges{{0, 3 * kLeast + kLeast / 2}, {6 * kLeast, kLeast / 2}}));
  // 8 are hidden.
  parts.Add({{8 * kLeast, 2 * kLeast}});
  EXPECT_EQ(parts.Take(), Ranges());
  parts.Add({{10 * kLeast, 2 * kLeast}, {7 * kLeast, kLeast}, {4 * kLeast, kLeast}});
  EXPECT_EQ(parts.Take().size(), 3u);
  // 2 are hidden, and a third of them is less than the least part.
  parts.Add({{5 * kLeast, kLeast - 1}});
  EXPECT_EQ(parts.Take(), Ranges());
  parts.Add({{6 * kLeast - 1, 1}});
  EXPECT_EQ(parts.Take(), (Ranges{{5 * kLeast, kLeast}}));
  parts.Add({{3 * kLeast + kLeast / 2, kLeast}});
  EXPECT_EQ(parts.Take(), Ranges());
}

TEST(ResultPartsTest, NoPartHasToBeLargerThanTheGreatestOne) {
  ResultParts parts(100 * kFullPartBytes);
  parts.Add({{0, kFullPartBytes - 1}});
  EXPECT_EQ(parts.Take(), Ranges());
  parts.Add({{kFullPartBytes - 1, 1}});
  EXPECT_EQ(parts.Take(), (Ranges{{0, kFullPartBytes}}));
}

TEST(ResultPartsTest, ASmallResultIsShownAsAWhole) {
  ResultParts parts(kShownEarlyBytes - 1);
  parts.Add({{0, kShownEarlyBytes - 2}});
  EXPECT_EQ(parts.Take(), Ranges());
}

TEST(YieldRuleTest, ShortYieldsGoOn) {
  YieldRule rule;
  const Instant now = Instant::FromNanos(5'000'000'000);
  EXPECT_TRUE(rule.MayYield(now));
  rule.EndYield(now, now + kLongYield - absl::Nanoseconds(1));
  EXPECT_TRUE(rule.MayYield(now + kLongYield));
}

TEST(YieldRuleTest, ALongYieldIsTheLastOneForAWhile) {
  YieldRule rule;
  const Instant began = Instant::FromNanos(5'000'000'000);
  const Instant ended = began + kLongYield;
  rule.EndYield(began, ended);
  EXPECT_FALSE(rule.MayYield(ended));
  EXPECT_FALSE(rule.MayYield(ended + kPauseAfterLongYield - absl::Nanoseconds(1)));
  EXPECT_TRUE(rule.MayYield(ended + kPauseAfterLongYield));
}

}  // namespace
}  // namespace phalanx::jobs
