// Reports of folds after a restart of the shard that contradict each other.
#include <memory>
#include <vector>

#include "gtest/gtest.h"
#include "src/directory/reductions/tree_plan/testing/reduce_plan_harness.h"

namespace phalanx::directory {
namespace {

using testing::CostsFor;
using testing::Folds;
using testing::Node;
using testing::On;
using testing::OtherVersion;
using testing::Source;
using testing::SumOf;
using testing::Target;

// Source i is on node i + 1.
class ReducePlanRestoreTest : public ::testing::Test {
 protected:
  void Start(int sources, int num_objects, NodeKey root) {
    plan_ = std::make_unique<ReducePlan>(Target(), SumOf(sources, num_objects), root);
    plan_->SetCosts(CostsFor(num_objects, 1).value());
    for (int i = 0; i < sources; ++i) plan_->OnSource(Source(i), On(i, {i + 1}));
  }
  void Registered(int slots, int slot, const std::vector<int>& sources, int node) {
    std::vector<ObjectId> ids;
    for (const int source : sources) ids.push_back(Source(source));
    plan_->Restore(slots, 1, slot, ids, Node(node), OtherVersion(node));
  }
  void ExpectTheWholeResult(size_t num_objects) {
    plan_->Begin();
    Folds folds;
    EXPECT_TRUE(folds.Apply(plan_->TakeEffects()).ok());
    EXPECT_TRUE(plan_->CheckInvariants().ok());
    ASSERT_TRUE(folds.Root());
    EXPECT_EQ(folds.Root()->second.reduced_from.size(), num_objects);
  }

  std::unique_ptr<ReducePlan> plan_;
};

// A slot was closed while the node that had computed it was away, so the node missed the DropFold.
TEST_F(ReducePlanRestoreTest, AFoldOfASlotThatWasClosedMeanwhileIsOneTooMany) {
  Start(5, 4, Node(4));
  Registered(4, 0, {0}, 1);
  Registered(4, 1, {1}, 2);
  Registered(4, 2, {2, 4}, 3);
  Registered(4, 3, {3}, 4);
  ExpectTheWholeResult(4);
}

TEST_F(ReducePlanRestoreTest, AFoldOfMoreSourcesThanAreWantedIsIgnored) {
  Start(2, 1, Node(2));
  plan_->Restore(2, 1, 0, std::vector<ObjectId>{Source(0), Source(1)}, Node(1), OtherVersion(1));
  ExpectTheWholeResult(1);
}

}  // namespace
}  // namespace phalanx::directory
