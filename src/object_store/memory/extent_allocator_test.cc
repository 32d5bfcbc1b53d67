#include "src/object_store/memory/extent_allocator.h"

#include <vector>

#include "gtest/gtest.h"
#include "src/common/random.h"
#include "src/common/testing/seed.h"
#include "src/common/testing/status_matchers.h"

namespace phalanx::object_store {
namespace {

using ::phalanx::testing::IsOk;
using Extent = ExtentAllocator::Extent;

TEST(ExtentAllocatorTest, TakesTheSmallestExtentThatIsLargeEnough) {
  ExtentAllocator allocator;
  allocator.AddSegment(1, 1024);
  const Extent a = *allocator.Allocate(128);
  const Extent b = *allocator.Allocate(64);
  const Extent c = *allocator.Allocate(256);
  const Extent d = *allocator.Allocate(64);
  allocator.Free(a);
  allocator.Free(c);
  EXPECT_EQ(allocator.Allocate(100)->offset, a.offset);
  EXPECT_EQ(allocator.Allocate(129)->offset, c.offset);
  allocator.Free(b);
  allocator.Free(d);
  EXPECT_THAT(allocator.CheckInvariants(), IsOk());
}

TEST(ExtentAllocatorTest, NeighboursGrowTogetherAgain) {
  ExtentAllocator allocator;
  allocator.AddSegment(1, 640);
  std::vector<Extent> all;
  for (int i = 0; i < 10; ++i) all.push_back(*allocator.Allocate(1));
  EXPECT_FALSE(allocator.Allocate(1));
  for (const int i : {3, 5, 4, 0, 9, 1, 2, 8, 6, 7}) allocator.Free(all[static_cast<size_t>(i)]);
  EXPECT_EQ(allocator.used_bytes(1), 0u);
  EXPECT_TRUE(allocator.Allocate(640));
}

TEST(ExtentAllocatorTest, AnExtentThatIsGivenUpIsNotReusedAndDoesNotKeepItsSegment) {
  ExtentAllocator allocator;
  allocator.AddSegment(1, 128);
  const Extent a = *allocator.Allocate(64);
  const Extent b = *allocator.Allocate(64);
  allocator.GiveUp(a);
  EXPECT_FALSE(allocator.Allocate(64));
  allocator.Free(b);
  EXPECT_FALSE(allocator.Allocate(128));
  EXPECT_EQ(allocator.used_bytes(1), 0u);
  allocator.RemoveSegment(1);
  EXPECT_EQ(allocator.free_bytes(), 0u);
}

TEST(ExtentAllocatorTest, ASegmentGrowsAtItsEnd) {
  ExtentAllocator allocator;
  allocator.AddSegment(1, 128);
  const Extent a = *allocator.Allocate(64);
  EXPECT_FALSE(allocator.Allocate(128));
  allocator.Grow(1, 64);
  const Extent b = *allocator.Allocate(128);
  EXPECT_EQ(b.offset, 64u) << "the new bytes and the free ones before them are one extent";
  allocator.Grow(1, 64);
  EXPECT_EQ(allocator.Allocate(64)->offset, 192u);
  allocator.Free(a);
  allocator.Free(b);
  EXPECT_THAT(allocator.CheckInvariants(), IsOk());
}

TEST(ExtentAllocatorTest, AnExtentThatIsTakenBackIsReused) {
  ExtentAllocator allocator;
  allocator.AddSegment(1, 128);
  const Extent a = *allocator.Allocate(64);
  const Extent b = *allocator.Allocate(64);
  allocator.GiveUp(a);
  allocator.Free(b);
  allocator.TakeBack(a);
  PHALANX_ASSERT_OK(allocator.CheckInvariants());
  EXPECT_EQ(allocator.given_up_bytes(1), 0u);
  EXPECT_TRUE(allocator.Allocate(128));
}

TEST(ExtentAllocatorTest, AnyOrderOfRequestsKeepsExtentsApart) {
  const uint64_t seed = testing::TestSeed(3);
  PHALANX_TRACE_SEED(seed);
  Random random(seed);
  ExtentAllocator allocator;
  std::vector<Extent> live;
  // Which units of each segment are taken: the model.
  std::vector<std::vector<bool>> taken;
  for (int step = 0; step < 20000; ++step) {
    if (step % 5000 == 0) {
      taken.push_back(std::vector<bool>(512));
      allocator.AddSegment(taken.size() - 1, 512 * 64);
    }
    const auto mark = [&](const Extent& e, bool to) {
      for (uint64_t unit = e.offset / 64; unit < (e.offset + e.bytes) / 64; ++unit) {
        ASSERT_NE(taken[e.segment][unit], to);
        taken[e.segment][unit] = to;
      }
    };
    if (random.Chance(0.55)) {
      const std::optional<Extent> e = allocator.Allocate(random.Below(3000));
      if (!e) continue;
      mark(*e, true);
      live.push_back(*e);
    } else if (!live.empty()) {
      std::swap(live[random.Below(live.size())], live.back());
      mark(live.back(), false);
      allocator.Free(live.back());
      live.pop_back();
    }
    if (step % 100 == 0) {
      ASSERT_THAT(allocator.CheckInvariants(), IsOk());
    }
  }
}

}  // namespace
}  // namespace phalanx::object_store
