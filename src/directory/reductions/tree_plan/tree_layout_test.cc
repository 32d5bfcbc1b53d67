#include "src/directory/reductions/tree_plan/tree_layout.h"

#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "src/directory/reductions/tree_plan/testing/reduce_plan_harness.h"

namespace phalanx::directory {
namespace {

using testing::CostsFor;
using ::testing::ElementsAre;
using testing::InOrder;
using testing::kLarge;
using testing::Node;
using testing::On;
using testing::SumOf;
using testing::Target;

// The sources of each slot; kNone is a free seat.
std::vector<std::vector<int>> SourcesOf(const TreeLayout& layout) {
  std::vector<std::vector<int>> slots;
  for (const TreeLayout::Group& group : layout.groups) {
    slots.emplace_back();
    for (const TreeLayout::Member& member : group.members) slots.back().push_back(member.source);
  }
  return slots;
}

// Four sources. Costs call for a chain.
struct Fixture {
  explicit Fixture(ReduceSpec spec, NodeKey root)
      : inputs{Target(), std::move(spec), root, root.valid(), CostsFor(3, 1).value(), kLarge} {}

  PlanInputs inputs;
  SourceTable sources{inputs};
};

TEST(TreeLayoutTest, SourcesOnOneNodeShareASlotAndMissingOnesComeLast) {
  Fixture plan(SumOf(4), NodeKey());
  plan.sources.SetState(3, On(3, {7}));
  plan.sources.SetState(1, On(1, {5}));
  plan.sources.SetState(0, On(0, {7}));
  const TreeLayout layout = ArrivalLayout(plan.inputs, plan.sources);
  EXPECT_THAT(SourcesOf(layout),
              ElementsAre(ElementsAre(3, 0), ElementsAre(1), ElementsAre(SourceTable::kNone)));
  EXPECT_FALSE(layout.root_in_tree);
}

TEST(TreeLayoutTest, SourcesAtTheRequestedRootAreInTheRootSlot) {
  Fixture plan(SumOf(4, 3), Node(6));
  plan.sources.SetState(0, On(0, {5}));
  plan.sources.SetState(1, On(1, {7}));
  plan.sources.SetState(2, On(2, {8}));
  plan.sources.SetState(3, On(3, {6}));
  const TreeLayout layout = ArrivalLayout(plan.inputs, plan.sources);
  // The last to arrive replaces the third; the circle of nodes begins behind the root.
  EXPECT_THAT(SourcesOf(layout), ElementsAre(ElementsAre(1), ElementsAre(0), ElementsAre(3)));
  EXPECT_TRUE(layout.root_in_tree);
}

TEST(TreeLayoutTest, NeighboursOfAFixedOrderShareASlot) {
  Fixture plan(InOrder(SumOf(4)), NodeKey());
  plan.sources.SetState(0, On(0, {5}));
  plan.sources.SetState(1, On(1, {5}));
  plan.sources.SetState(3, On(3, {5}));
  EXPECT_THAT(SourcesOf(FixedLayout(plan.inputs, plan.sources)),
              ElementsAre(ElementsAre(0, 1), ElementsAre(2), ElementsAre(3)));
}

TEST(TreeLayoutTest, NoTreeIsMadeOfInlineBytesAlone) {
  Fixture plan(SumOf(4), Node(1));
  plan.sources.SetState(0, testing::Inline(On(0, {})));
  EXPECT_TRUE(ArrivalLayout(plan.inputs, plan.sources).groups.empty());
  EXPECT_TRUE(FixedLayout(plan.inputs, plan.sources).groups.empty());
}

}  // namespace
}  // namespace phalanx::directory
