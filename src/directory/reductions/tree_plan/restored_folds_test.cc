#include "src/directory/reductions/tree_plan/restored_folds.h"

#include <vector>

#include "gtest/gtest.h"
#include "src/common/testing/status_matchers.h"
#include "src/directory/reductions/tree_plan/testing/reduce_plan_harness.h"

namespace phalanx::directory {
namespace {

using phalanx::testing::IsOk;
using testing::InOrder;
using testing::kLarge;
using testing::Node;
using testing::On;
using testing::OtherVersion;
using testing::Source;
using testing::SumOf;
using testing::Target;

// Four sources, source i on node i + 1, before a restart in a chain.
class RestoredFoldsTest : public ::testing::Test {
 protected:
  explicit RestoredFoldsTest(ReduceSpec spec = SumOf(4))
      : inputs_{Target(), std::move(spec), Node(4), /*root_up=*/true, {}, kLarge} {
    for (int i = 0; i < 4; ++i) sources_.SetState(i, On(i, {i + 1}));
  }
  void TearDown() override { EXPECT_THAT(restored_.CheckInvariants(), IsOk()); }
  void Report(int slots, int number, const std::vector<int>& sources, int node) {
    std::vector<ObjectId> ids;
    for (const int source : sources) ids.push_back(Source(source));
    restored_.Add(slots, 1, number, ids, Node(node), OtherVersion(node));
  }
  // The source in the first seat of the slot.
  int SourceIn(const TreeLayout& layout, int slot) {
    return layout.groups.at(slot).members.front().source;
  }

  PlanInputs inputs_;
  SourceTable sources_{inputs_};
  FoldVersions versions_{inputs_, sources_};
  RestoredFolds restored_{inputs_, sources_, versions_};
};

class RestoredFixedOrderTest : public RestoredFoldsTest {
 protected:
  RestoredFixedOrderTest() : RestoredFoldsTest(InOrder(SumOf(4))) {}
};

TEST_F(RestoredFoldsTest, AReportedSlotKeepsItsSourceAndNode) {
  Report(4, 1, {2}, 3);
  EXPECT_TRUE(restored_.DescribeTree());
  const TreeLayout layout = restored_.MakeLayout();
  ASSERT_EQ(layout.groups.size(), 4u);
  EXPECT_EQ(SourceIn(layout, 1), 2);
  EXPECT_EQ(layout.groups[1].node, Node(3));
  EXPECT_EQ(SourceIn(layout, 0), SourceTable::kNone);
  EXPECT_EQ(SourceIn(layout, 3), 3) << "the source at the requested root";
  EXPECT_TRUE(layout.root_in_tree);
}

TEST_F(RestoredFoldsTest, ALeafKeepsItsSeatBesideTheSlotsOwnSource) {
  Report(3, 1, {1}, 2);
  Report(3, 4 + 1, {2}, 3);
  const TreeLayout layout = restored_.MakeLayout();
  ASSERT_EQ(layout.groups.at(1).members.size(), 2u);
  EXPECT_EQ(layout.groups[1].members[0].source, 2) << "the leaf has the number of seat 0";
  EXPECT_EQ(layout.groups[1].members[1].source, 1);
}

TEST_F(RestoredFoldsTest, TheFirstOfTwoContradictingReportsCounts) {
  Report(4, 0, {0}, 1);
  Report(4, 1, {0}, 2);
  Report(3, 2, {2}, 3);
  Report(4, 0, {1}, 2);
  const TreeLayout layout = restored_.MakeLayout();
  EXPECT_EQ(layout.groups.size(), 4u);
  EXPECT_EQ(SourceIn(layout, 0), 0);
  EXPECT_EQ(SourceIn(layout, 1), SourceTable::kNone);
}

TEST_F(RestoredFoldsTest, InvalidReportsAreIgnored) {
  Report(5, 0, {0}, 1);
  Report(0, 0, {0}, 1);
  Report(4, -1, {0}, 1);
  Report(4, 5 + 1, {0, 1}, 1);  // a leaf of two sources
  Report(4, 0, {9}, 1);         // no source of the reduction
  EXPECT_TRUE(restored_.empty());
}

TEST_F(RestoredFoldsTest, AReportOfANodeThatIsDownIsForgotten) {
  Report(4, 1, {2}, 3);
  restored_.ForgetNode(Node(3));
  EXPECT_TRUE(restored_.empty());
}

TEST_F(RestoredFixedOrderTest, ASlotHasNeighboursOfTheList) {
  Report(2, 1, {2, 3}, 3);
  const TreeLayout layout = restored_.MakeLayout();
  ASSERT_EQ(layout.groups.size(), 2u);
  EXPECT_EQ(layout.groups[0].members.size(), 2u);
  EXPECT_EQ(SourceIn(layout, 0), 0);
  EXPECT_EQ(SourceIn(layout, 1), 2);
}

TEST_F(RestoredFixedOrderTest, ASlotWithoutSourcesMakesNoTree) {
  Report(2, 0, {0, 3}, 3);
  EXPECT_TRUE(restored_.MakeLayout().groups.empty());
}

}  // namespace
}  // namespace phalanx::directory
