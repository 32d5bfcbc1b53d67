// Trees of every small size and degree, checked slot by slot, and the degrees that follow from the
// cost model of the Hoplite paper (SIGCOMM 2021, section 3.4.2).
#include "src/directory/reductions/tree_plan/reduce_shape.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace phalanx::directory {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr uint64_t kMiB = 1 << 20;

// 1 Gbit/s, half a millisecond a hop.
ReduceCosts Gigabit() {
  return {.latency = absl::Microseconds(500),
          .bytes_per_second = 125e6,
          .fold_per_second = 5e9,
          .segment_bytes = 16 << 10};
}

int DepthOfSlot(const ReduceShape& shape, int slot) {
  return static_cast<int>(shape.Ancestors(slot).size());
}

template <typename Check>
void ForEveryTree(Check check) {
  for (int slots = 1; slots <= 40; ++slots) {
    for (int degree = 1; degree <= std::max(1, slots); ++degree) {
      SCOPED_TRACE(testing::Message() << slots << " slots, degree " << degree);
      check(ReduceShape(slots, degree));
    }
  }
}

TEST(ReduceShapeTest, AChainEndsWithTheLastArrival) {
  const ReduceShape chain(6, 1);
  EXPECT_EQ(chain.root(), 5);
  EXPECT_THAT(chain.Children(5), ElementsAre(4));
  EXPECT_THAT(chain.Children(0), IsEmpty());
  EXPECT_THAT(chain.Ancestors(3), ElementsAre(4, 5));
  EXPECT_EQ(chain.depth(), 5);
  EXPECT_EQ(chain.fan_in(), 1);
}

TEST(ReduceShapeTest, ABinaryTreeIsNumberedInOrder) {
  const ReduceShape tree(6, 2);
  EXPECT_EQ(tree.root(), 3);
  EXPECT_THAT(tree.Children(3), ElementsAre(1, 5));
  EXPECT_THAT(tree.Children(1), ElementsAre(0, 2));
  EXPECT_THAT(tree.Children(5), ElementsAre(4));
  EXPECT_EQ(tree.subtree_begin(5), 4);
  EXPECT_EQ(tree.subtree_end(5), 6);
}

TEST(ReduceShapeTest, AStarHasOneChildBeforeItsOwnSource) {
  const ReduceShape star(6, 5);
  EXPECT_EQ(star.root(), 1);
  EXPECT_THAT(star.Children(1), ElementsAre(0, 2, 3, 4, 5));
  EXPECT_EQ(star.depth(), 1);
  EXPECT_EQ(star.fan_in(), 5);
}

TEST(ReduceShapeTest, AReduceOfOneIsItsSource) {
  const ReduceShape one(1, 1);
  EXPECT_EQ(one.root(), 0);
  EXPECT_EQ(one.parent(0), ReduceShape::kNone);
  EXPECT_EQ(one.depth(), 0);
  EXPECT_EQ(one.fan_in(), 0);
}

TEST(ReduceShapeTest, EveryTreeFoldsItsSlotsInOrder) {
  ForEveryTree([](const ReduceShape& shape) {
    // The first child, the slot, the other children: counted in this order, slots are 0, 1, 2, ...
    std::vector<std::vector<int>> folded(shape.slots());
    std::vector<int> by_depth(shape.slots());
    std::iota(by_depth.begin(), by_depth.end(), 0);
    std::stable_sort(by_depth.begin(), by_depth.end(),
                     [&](int a, int b) { return DepthOfSlot(shape, a) > DepthOfSlot(shape, b); });
    for (const int slot : by_depth) {
      const std::vector<int> children = shape.Children(slot);
      for (size_t i = 0; i < children.size(); ++i) {
        EXPECT_EQ(shape.parent(children[i]), slot);
        if (i == 1) folded[slot].push_back(slot);
        const std::vector<int>& below = folded[children[i]];
        folded[slot].insert(folded[slot].end(), below.begin(), below.end());
      }
      if (children.size() < 2) folded[slot].push_back(slot);
      EXPECT_EQ(folded[slot].front(), shape.subtree_begin(slot));
      EXPECT_EQ(folded[slot].back() + 1, shape.subtree_end(slot));
    }
    std::vector<int> all(shape.slots());
    std::iota(all.begin(), all.end(), 0);
    EXPECT_EQ(folded[shape.root()], all);
  });
}

TEST(ReduceShapeTest, TheFirstSubtreeOfASlotIsThereBeforeTheSlot) {
  ForEveryTree([](const ReduceShape& shape) {
    for (int slot = 0; slot < shape.slots(); ++slot) {
      const std::vector<int> children = shape.Children(slot);
      EXPECT_LE(children.size(), static_cast<size_t>(shape.degree()));
      if (children.empty()) continue;
      EXPECT_EQ(shape.subtree_end(children.front()), slot);
      for (size_t i = 1; i < children.size(); ++i) EXPECT_GT(children[i], slot);
    }
  });
}

TEST(ReduceShapeTest, DepthAndFanInAreThoseOfTheTree) {
  ForEveryTree([](const ReduceShape& shape) {
    int depth = 0;
    size_t fan_in = 0;
    for (int slot = 0; slot < shape.slots(); ++slot) {
      depth = std::max(depth, DepthOfSlot(shape, slot));
      fan_in = std::max(fan_in, shape.Children(slot).size());
    }
    EXPECT_EQ(shape.depth(), depth);
    EXPECT_EQ(shape.fan_in(), static_cast<int>(fan_in));
  });
}

TEST(ReduceShapeTest, NoTreeOfTheSameDegreeIsLessDeep) {
  ForEveryTree([](const ReduceShape& shape) {
    if (shape.degree() == 1) return;
    // The number of slots of a full tree whose depth is one less.
    int64_t fit = 0;
    int64_t level = 1;
    for (int depth = 0; depth < shape.depth(); ++depth, level *= shape.degree()) fit += level;
    EXPECT_LT(fit, shape.slots());
  });
}

TEST(ReduceShapeTest, AHundredThousandSlotsMakeAChainWithoutRecursion) {
  const ReduceShape chain(100'000, 1);
  EXPECT_EQ(chain.root(), 99'999);
  EXPECT_EQ(chain.parent(0), 1);
}

TEST(ChooseDegreeTest, LargeObjectsMakeAChain) {
  EXPECT_EQ(ChooseDegree(8, 32 * kMiB, Gigabit()), 1);
  EXPECT_EQ(ChooseDegree(64, 1024 * kMiB, Gigabit()), 1);
}

TEST(ChooseDegreeTest, SmallObjectsGoToTheRootAtOnce) {
  EXPECT_EQ(ChooseDegree(8, 1024, Gigabit()), 7);
}

TEST(ChooseDegreeTest, InBetweenIsATree) {
  // A chain: 999 hops; a star: 999 times the bytes.
  const int degree = ChooseDegree(1000, kMiB / 4, Gigabit());
  EXPECT_GT(degree, 1);
  EXPECT_LT(degree, 10);
}

TEST(ChooseDegreeTest, ASlowFoldCallsForFewerChildrenThanAFastOne) {
  ReduceCosts slow = Gigabit();
  slow.fold_per_second = 10e6;
  EXPECT_LT(ChooseDegree(1000, 64 << 10, slow), ChooseDegree(1000, 64 << 10, Gigabit()));
}

TEST(ChooseDegreeTest, ChildrenThatComeUnevenlyMakeAChainPaySooner) {
  ReduceCosts costs = Gigabit();
  costs.unevenness = 1.5;
  bool differs = false;
  for (uint64_t size = 4096; size <= 4 * kMiB; size *= 2) {
    EXPECT_LE(ChooseDegree(24, size, costs), ChooseDegree(24, size, Gigabit())) << size;
    differs = differs || ChooseDegree(24, size, costs) != ChooseDegree(24, size, Gigabit());
  }
  EXPECT_TRUE(differs);
  EXPECT_EQ(ReduceTime(24, 1, kMiB, costs), ReduceTime(24, 1, kMiB, Gigabit()));
}

TEST(ChooseDegreeTest, IsTheBestOfAllDegrees) {
  for (const int slots : {1, 2, 3, 8, 24, 100, 1000}) {
    for (uint64_t size = 1024; size <= 1024 * kMiB; size *= 4) {
      const ReduceCosts costs = Gigabit();
      absl::Duration least = ReduceTime(slots, 1, size, costs);
      for (int d = 2; d < slots; ++d) least = std::min(least, ReduceTime(slots, d, size, costs));
      const int degree = ChooseDegree(slots, size, costs);
      EXPECT_LE(ReduceTime(slots, degree, size, costs), 1.05 * least)
          << slots << " slots of " << size << " bytes: degree " << degree;
    }
  }
}

// If only the bytes count, the model has the limits of the paper's.
TEST(ReduceTimeTest, HasThePapersLimits) {
  ReduceCosts costs = Gigabit();
  costs.segment_bytes = 0;
  const double latency = absl::ToDoubleSeconds(costs.latency);
  const double once = 32.0 * kMiB / costs.bytes_per_second;
  const int n = 4095;  // a full binary tree
  EXPECT_NEAR(absl::ToDoubleSeconds(ReduceTime(n, 1, 32 * kMiB, costs)), n * latency + once,
              2 * latency);
  EXPECT_NEAR(absl::ToDoubleSeconds(ReduceTime(n, 2, 32 * kMiB, costs)),
              latency * std::log2(n) + 2 * once, 2 * latency);
  EXPECT_NEAR(absl::ToDoubleSeconds(ReduceTime(n, n - 1, 32 * kMiB, costs)),
              latency + (n - 1) * once, 2 * latency);
}

}  // namespace
}  // namespace phalanx::directory
