#include "src/client/spmd/fold_plan.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace phalanx::spmd::internal {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

// The ranks that a rank's value has, in the order in which they are folded.
std::string FoldOf(const FoldPlan& plan, int rank) {
  std::string ranks = absl::StrCat(rank, " ");
  for (const int child : plan.ChildrenOf(rank)) ranks += FoldOf(plan, child);
  return ranks;
}

TEST(FoldPlan, RankZeroFoldsAllRanksInTheirOrder) {
  std::string all;
  for (int world = 1; world <= 70; ++world) {
    all += absl::StrCat(world - 1, " ");
    EXPECT_EQ(FoldOf(FoldPlan::OfValues(world), 0), all);
    // Both shapes.
    for (const uint64_t bytes : {uint64_t{300'000}, uint64_t{16} << 20}) {
      EXPECT_EQ(FoldOf(FoldPlan::OfVectors(world, bytes, 4), 0), all);
    }
  }
}

TEST(FoldPlan, ATreeHasTheShapeOfTheDrawing) {
  const FoldPlan plan = FoldPlan::OfValues(8);
  EXPECT_THAT(plan.ChildrenOf(0), ElementsAre(1, 2, 4));
  EXPECT_THAT(plan.ChildrenOf(4), ElementsAre(5, 6));
  EXPECT_THAT(plan.ChildrenOf(6), ElementsAre(7));
  EXPECT_THAT(plan.ChildrenOf(7), IsEmpty());
}

TEST(FoldPlan, ALargeVectorGoesAlongAChainWhereThatEndsFirst) {
  EXPECT_FALSE(FoldPlan::OfVectors(8, 1 << 20, 4).chain());
  EXPECT_TRUE(FoldPlan::OfVectors(8, 8 << 20, 4).chain());
  EXPECT_TRUE(FoldPlan::OfVectors(3, 8 << 20, 4).chain());
  // 15 + 999 pieces, and 16 * 10.
  EXPECT_FALSE(FoldPlan::OfVectors(1000, 32 << 20, 4).chain());
  EXPECT_FALSE(FoldPlan::OfVectors(2, 32 << 20, 4).chain());
}

TEST(FoldPlan, PiecesCoverTheVectorInWholeElements) {
  for (const uint64_t element : {1, 3, 8, 1'000'000}) {
    for (const uint64_t count : {1, 15, 16, 17, 40, 5'000'001}) {
      const uint64_t bytes = element * count;
      if (bytes > uint64_t{4} << 30) continue;
      const FoldPlan plan = FoldPlan::OfVectors(3, bytes, element);
      EXPECT_LE(plan.pieces(), kMaxPieces);
      uint64_t end = 0;
      for (uint64_t i = 0; i < plan.pieces(); ++i) {
        const FoldPlan::Piece piece = plan.PieceAt(i);
        EXPECT_EQ(piece.from, end) << bytes;
        EXPECT_GT(piece.bytes, 0u) << bytes;
        EXPECT_EQ(piece.from % (16 * element), 0u) << bytes;
        EXPECT_EQ(piece.bytes % element, 0u) << bytes;
        end += piece.bytes;
      }
      EXPECT_EQ(end, bytes);
    }
  }
  EXPECT_EQ(FoldPlan::OfVectors(3, 8 << 20, 4).pieces(), 8u);
}

TEST(FoldPlan, AParentWaitsLongerThanItsChildren) {
  for (const FoldPlan& plan : {FoldPlan::OfValues(13), FoldPlan::OfVectors(13, 16 << 20, 4)}) {
    EXPECT_DOUBLE_EQ(plan.ShareOf(0), 0.9);
    for (int rank = 0; rank < 13; ++rank) {
      for (const int child : plan.ChildrenOf(rank)) {
        EXPECT_LT(plan.ShareOf(child), plan.ShareOf(rank));
        EXPECT_GE(plan.ShareOf(child), 0.7);
      }
    }
  }
  EXPECT_DOUBLE_EQ(FoldPlan::OfValues(1).ShareOf(0), 0.9);
}

}  // namespace
}  // namespace phalanx::spmd::internal
