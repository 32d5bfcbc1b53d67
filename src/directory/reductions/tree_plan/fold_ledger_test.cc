#include "src/directory/reductions/tree_plan/fold_ledger.h"

#include <vector>

#include "gtest/gtest.h"
#include "src/common/testing/status_matchers.h"
#include "src/directory/reductions/tree_plan/testing/reduce_plan_harness.h"

namespace phalanx::directory {
namespace {

using phalanx::testing::IsOk;
using testing::kLarge;
using testing::Node;
using testing::Source;
using testing::SumOf;
using testing::Target;

class FoldLedgerTest : public ::testing::Test {
 protected:
  void TearDown() override { EXPECT_THAT(ledger_.CheckInvariants(fold_.placed() ? 1 : 0), IsOk()); }
  FoldTask Task(bool root = false) {
    FoldTask task;
    task.slot = 3;
    task.root = root;
    task.version = versions_.OfLeaf(Source(0), testing::Attempt(0));
    return task;
  }
  // How many effects of each kind there are since the last call.
  int Placed() { return Count<PlaceFold>(); }
  int Dropped() { return Count<DropFold>(); }
  template <typename Effect>
  int Count() {
    int count = 0;
    for (const ReduceEffect& effect : ledger_.TakeEffects()) {
      count += std::holds_alternative<Effect>(effect) ? 1 : 0;
    }
    return count;
  }

  PlanInputs inputs_{Target(), SumOf(2), Node(1), /*root_up=*/true, {}, kLarge};
  SourceTable sources_{inputs_};
  FoldVersions versions_{inputs_, sources_};
  FoldLedger ledger_{versions_};
  Fold fold_;
};

TEST_F(FoldLedgerTest, PlacesATaskOnce) {
  EXPECT_TRUE(ledger_.Place(fold_, Node(1), Task()));
  EXPECT_EQ(ledger_.NumberOf(Task().version), 3);
  EXPECT_EQ(Placed(), 1);
  EXPECT_FALSE(ledger_.Place(fold_, Node(1), Task()));
  EXPECT_EQ(Placed(), 0);
  ledger_.Drop(fold_);
  EXPECT_FALSE(ledger_.NumberOf(Task().version));
  EXPECT_EQ(Dropped(), 1);
}

TEST_F(FoldLedgerTest, AMovedFoldIsDroppedAtItsOldNode) {
  ledger_.Place(fold_, Node(1), Task());
  ledger_.TakeEffects();
  EXPECT_TRUE(ledger_.Place(fold_, Node(2), Task()));
  EXPECT_EQ(Dropped(), 1);
}

TEST_F(FoldLedgerTest, ALostFoldIsPlacedAgainAndIsNotNew) {
  ledger_.Place(fold_, Node(1), Task());
  ledger_.MarkLost(fold_);
  ledger_.TakeEffects();
  EXPECT_FALSE(ledger_.Place(fold_, Node(1), Task()));
  EXPECT_EQ(Placed(), 1);
  EXPECT_FALSE(fold_.lost());
}

TEST_F(FoldLedgerTest, NothingIsDroppedAtANodeThatIsDown) {
  ledger_.Place(fold_, Node(1), Task());
  ledger_.MarkNodeDown(fold_, Node(2));
  EXPECT_FALSE(fold_.lost());
  ledger_.MarkNodeDown(fold_, Node(1));
  ledger_.TakeEffects();
  ledger_.Drop(fold_);
  EXPECT_EQ(Dropped(), 0);
}

TEST_F(FoldLedgerTest, ADroppedRootIsVoidAndARootElsewhereIsNoNewEpoch) {
  ledger_.Place(fold_, Node(1), Task(/*root=*/true));
  EXPECT_EQ(ledger_.epoch(), 1u);
  ledger_.Place(fold_, Node(2), Task(/*root=*/true));
  EXPECT_EQ(ledger_.epoch(), 1u);
  VersionText text = versions_.Begin(/*root=*/false);
  text.AddSource(Source(0), testing::Attempt(0));
  EXPECT_NE(versions_.OfRoot(text, Node(1)), Task().version);
  EXPECT_EQ(versions_.OfRoot(text, Node(2)), Task().version);
}

}  // namespace
}  // namespace phalanx::directory
