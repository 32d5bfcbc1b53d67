#include "src/directory/reductions/tree_plan/slot_tree.h"

#include <optional>

#include "gtest/gtest.h"
#include "src/common/testing/status_matchers.h"
#include "src/directory/reductions/tree_plan/testing/reduce_plan_harness.h"

namespace phalanx::directory {
namespace {

using phalanx::testing::IsOk;
using phalanx::testing::StatusIs;
using testing::Folds;
using testing::kLarge;
using testing::Node;
using testing::On;
using testing::SumOf;
using testing::Target;

// A chain of three slots; source i is on node i + 1, source 3 is a spare on node 4.
class SlotTreeTest : public ::testing::Test {
 protected:
  // The first `seated` of the three slots have their source, the others a free seat.
  void Start(NodeKey root, int seated = 3) {
    inputs_.emplace(PlanInputs{Target(), SumOf(4, 3), root, root.valid(), {}, kLarge});
    sources_.emplace(*inputs_);
    versions_.emplace(*inputs_, *sources_);
    ledger_.emplace(*versions_);
    tree_.emplace(*inputs_, *sources_, *versions_, *ledger_);
    for (int i = 0; i < seated; ++i) sources_->SetState(i, On(i, {i + 1}));
    TreeLayout layout;
    for (int i = 0; i < 3; ++i) {
      layout.groups.push_back({{{}}, "", {}});
      if (i < seated) layout.groups.back().members = {{i, Node(i + 1)}};
    }
    layout.root_in_tree = root == Node(3);
    ASSERT_THAT(tree_->Build(layout), IsOk());
    Flush();
  }
  void Set(int source, std::optional<ReduceSource> state) {
    sources_->SetState(source, std::move(state));
    tree_->OnSourceChanged(source);
  }
  void Flush() {
    EXPECT_THAT(tree_->FillSeats(), IsOk());
    tree_->Flush();
    EXPECT_THAT(folds_.Apply(ledger_->TakeEffects()), IsOk());
    EXPECT_THAT(tree_->CheckInvariants(/*committed=*/false), IsOk());
    EXPECT_THAT(ledger_->CheckInvariants(tree_->placed_folds()), IsOk());
  }
  SlotVersion VersionOf(int slot) { return tree_->slots()[slot].fold.task.version; }

  std::optional<PlanInputs> inputs_;
  std::optional<SourceTable> sources_;
  std::optional<FoldVersions> versions_;
  std::optional<FoldLedger> ledger_;
  std::optional<SlotTree> tree_;
  Folds folds_;
};

TEST_F(SlotTreeTest, PlacesEverySlotWithTheOneBelowItAsAnInput) {
  Start(Node(3));
  EXPECT_EQ(tree_->placed_folds(), 3u);
  EXPECT_FALSE(tree_->has_free_seats());
  EXPECT_EQ(tree_->root_fold().node, Node(3));
  ASSERT_EQ(tree_->root_fold().task.inputs.size(), 2u);
  EXPECT_EQ(tree_->root_fold().task.inputs[0].version, VersionOf(1));
}

TEST_F(SlotTreeTest, ASlotAboveTheRootDeliversToANodeWithoutSources) {
  Start(Node(9));
  EXPECT_EQ(tree_->slots().size(), 4u);
  EXPECT_EQ(tree_->root_fold().node, Node(9));
  inputs_->root_up = false;
  tree_->OnRootDown();
  Flush();
  EXPECT_EQ(tree_->slots().size(), 3u);
  EXPECT_EQ(tree_->root_fold().node, Node(3));
}

TEST_F(SlotTreeTest, ASourceThatArrivesAtTheRequestedRootTakesTheTreesRoot) {
  Start(Node(9), /*seated=*/1);
  ASSERT_EQ(tree_->slots().size(), 4u);
  Set(3, On(3, {9}));
  Flush();
  ASSERT_EQ(tree_->slots().size(), 3u);
  EXPECT_EQ(tree_->slots()[2].node, Node(9));
  Set(1, On(1, {2}));
  Flush();
  EXPECT_EQ(tree_->slots()[1].node, Node(2));
  EXPECT_EQ(tree_->root_fold().node, Node(9));
  ASSERT_EQ(tree_->root_fold().task.inputs.size(), 2u);
  EXPECT_EQ(tree_->root_fold().task.inputs[0].version, VersionOf(1));
  inputs_->root_up = false;
  tree_->OnRootDown();
  Set(3, On(3, {4}));
  Flush();
  EXPECT_EQ(tree_->root_fold().node, Node(4));
}

TEST_F(SlotTreeTest, ASourceThatArrivesAtTheRequestedRootWhenTheTreesRootIsTakenGetsAnotherSeat) {
  Start(Node(9));
  Set(0, std::nullopt);
  Set(3, On(3, {9}));
  Flush();
  EXPECT_EQ(tree_->slots().size(), 4u);
  EXPECT_EQ(tree_->slots()[0].node, Node(9));
  EXPECT_EQ(tree_->root_fold().node, Node(9));
}

TEST_F(SlotTreeTest, ASpareTakesTheSeatAndOnlySlotsAboveStartOver) {
  Start(NodeKey());
  const SlotVersion below = VersionOf(0);
  const SlotVersion above = VersionOf(2);
  Set(1, std::nullopt);
  EXPECT_EQ(tree_->placed_folds(), 1u);
  EXPECT_TRUE(tree_->has_free_seats());
  Set(3, On(3, {4}));
  Flush();
  EXPECT_EQ(VersionOf(0), below);
  EXPECT_NE(VersionOf(2), above);
  EXPECT_EQ(tree_->slots()[1].node, Node(4));
}

TEST_F(SlotTreeTest, ASourceOfTheNodeAboveJoinsThatSlotAndItsOwnIsClosed) {
  Start(NodeKey());
  Set(1, std::nullopt);
  Set(3, On(3, {3}));
  Flush();
  EXPECT_TRUE(tree_->slots()[1].closed());
  EXPECT_EQ(tree_->slots()[2].seats.size(), 2u);
  EXPECT_EQ(tree_->slots()[0].parent, 2);
}

TEST_F(SlotTreeTest, AMovedSourceKeepsTheVersion) {
  Start(NodeKey());
  const SlotVersion version = VersionOf(2);
  Set(0, On(0, {8}));
  Flush();
  EXPECT_EQ(tree_->slots()[0].node, Node(8));
  EXPECT_EQ(VersionOf(2), version);
}

TEST_F(SlotTreeTest, ALostFoldMovesToAnotherHolder) {
  Start(NodeKey());
  Set(0, On(0, {1, 8}));
  Flush();
  ledger_->MarkLost(tree_->FoldOf(0));
  tree_->OnFoldLost(0, Node(1));
  Flush();
  EXPECT_EQ(tree_->slots()[0].node, Node(8));
}

TEST_F(SlotTreeTest, RefusesASourceOfAnotherSize) {
  Start(NodeKey());
  Set(1, std::nullopt);
  Set(3, On(3, {4}, kLarge / 2));
  EXPECT_THAT(tree_->FillSeats(), StatusIs(absl::StatusCode::kInvalidArgument));
  tree_->Clear();
  sources_->ClearSeats();
  EXPECT_THAT(folds_.Apply(ledger_->TakeEffects()), IsOk());
  EXPECT_TRUE(folds_.at.empty());
  EXPECT_TRUE(tree_->empty());
}

}  // namespace
}  // namespace phalanx::directory
