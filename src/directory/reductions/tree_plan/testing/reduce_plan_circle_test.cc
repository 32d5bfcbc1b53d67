// Reductions of the same sources with different roots share the links evenly.
#include "gtest/gtest.h"
#include "src/directory/reductions/tree_plan/testing/reduce_plan_harness.h"

namespace phalanx::directory {
namespace {

using testing::CostsFor;
using testing::Folds;
using testing::Node;
using testing::On;
using testing::Source;
using testing::SumOf;
using testing::Target;

constexpr int kNodes = 6;

// Returns the chain of a reduction with that requested root. Its sources, on nodes 1 to 6, become
// ready in an order that differs for each root.
Folds ChainTo(int root) {
  ReducePlan plan(Target(), SumOf(kNodes), Node(root));
  plan.SetCosts(CostsFor(kNodes, 1).value());
  for (int i = 0; i < kNodes; ++i) {
    const int source = (5 * i + root) % kNodes;
    plan.OnSource(Source(source), On(source, {source + 1}));
  }
  plan.Begin();
  Folds folds;
  EXPECT_TRUE(folds.Apply(plan.TakeEffects()).ok());
  EXPECT_TRUE(plan.CheckInvariants().ok());
  return folds;
}

TEST(ReducePlanCircleTest, EachNodeBeginsOneChainAndReceivesFromOneNeighbourAlone) {
  for (int root = 1; root <= kNodes; ++root) {
    const Folds folds = ChainTo(root);
    for (int slot = 0; slot < kNodes; ++slot) {
      const auto fold = folds.Slot(slot);
      ASSERT_TRUE(fold);
      EXPECT_EQ(fold->first, Node((root + slot) % kNodes + 1))
          << "root " << root << ", slot " << slot;
    }
  }
}

}  // namespace
}  // namespace phalanx::directory
