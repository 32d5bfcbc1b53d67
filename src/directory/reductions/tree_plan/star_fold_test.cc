#include "src/directory/reductions/tree_plan/star_fold.h"

#include <optional>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "src/common/testing/status_matchers.h"
#include "src/directory/reductions/tree_plan/testing/reduce_plan_harness.h"

namespace phalanx::directory {
namespace {

using phalanx::testing::IsOk;
using ::testing::ElementsAre;
using testing::HopCosts;
using testing::Inline;
using testing::Node;
using testing::On;
using testing::OtherVersion;
using testing::Source;
using testing::SumOf;
using testing::Target;

constexpr uint64_t kSmall = 64;

// Two of three small sources, to node 1. A hop costs as much as a mebibyte on the link.
class StarFoldTest : public ::testing::Test {
 protected:
  void TearDown() override { EXPECT_THAT(star_.CheckInvariants(), IsOk()); }
  void Set(int source, std::optional<ReduceSource> state) {
    star_.BeforeChange(source);
    sources_.SetState(source, std::move(state));
    star_.AfterChange(source);
  }

  PlanInputs inputs_{Target(), SumOf(3, 2), Node(1), /*root_up=*/true, HopCosts(1 << 20), kSmall};
  SourceTable sources_{inputs_};
  FoldVersions versions_{inputs_, sources_};
  FoldLedger ledger_{versions_};
  RestoredFolds restored_{inputs_, sources_, versions_};
  StarFold star_{inputs_, sources_, restored_, versions_, ledger_};
};

TEST_F(StarFoldTest, PaysForSmallSourcesOnly) {
  EXPECT_TRUE(star_.Pays());
  inputs_.size_bytes = kMaxInlineBytes + 1;
  EXPECT_FALSE(star_.Pays());
}

TEST_F(StarFoldTest, WaitsUntilEnoughSourcesCanBeHadAtTheNode) {
  Set(2, On(2, {1}, kSmall));
  EXPECT_FALSE(star_.FindPlacement());
  Set(0, On(0, {4}, kSmall));
  EXPECT_FALSE(star_.FindPlacement()) << "source 0 is only at another node";
  Set(0, Inline(On(0, {4}, kSmall)));
  const std::optional<StarFold::Placement> placement = star_.FindPlacement();
  ASSERT_TRUE(placement);
  EXPECT_EQ(placement->node, Node(1));
  EXPECT_THAT(placement->sources, ElementsAre(2, 0)) << "in the order of arrival";
  Set(0, std::nullopt);
  EXPECT_FALSE(star_.FindPlacement());
}

TEST_F(StarFoldTest, OneFoldHasAllSourcesAndIsCommitted) {
  Set(0, Inline(On(0, {4}, kSmall)));
  Set(1, On(1, {1}, kSmall));
  star_.Place(*star_.FindPlacement());
  const FoldTask& task = star_.fold().task;
  EXPECT_TRUE(task.root);
  EXPECT_TRUE(task.committed);
  EXPECT_THAT(task.reduced_from, ElementsAre(Source(0), Source(1)));
  ASSERT_EQ(task.inputs.size(), 2u);
  EXPECT_EQ(task.inputs[0].kind, FoldInput::Kind::kInline);
  EXPECT_EQ(task.inputs[1].kind, FoldInput::Kind::kSource);
  EXPECT_TRUE(sources_.waiting().empty());
}

TEST_F(StarFoldTest, KeepsTheOrderFromBeforeARestart) {
  const std::vector<ObjectId> before = {Source(2), Source(0)};
  restored_.Add(1, 1, 0, before, Node(1), OtherVersion(1));
  for (int i = 0; i < 3; ++i) Set(i, On(i, {1}, kSmall));
  EXPECT_FALSE(restored_.DescribeTree());
  EXPECT_THAT(star_.FindPlacement()->sources, ElementsAre(2, 0));
}

TEST_F(StarFoldTest, ADropKeepsTheNumberOfLosses) {
  EXPECT_EQ(star_.CountLoss(), 1);
  star_.Drop();
  EXPECT_EQ(star_.CountLoss(), 2);
}

}  // namespace
}  // namespace phalanx::directory
