#include "src/directory/reductions/tree_plan/fold_versions.h"

#include "gtest/gtest.h"
#include "src/common/testing/status_matchers.h"
#include "src/directory/reductions/tree_plan/testing/reduce_plan_harness.h"

namespace phalanx::directory {
namespace {

using phalanx::testing::IsOk;
using testing::Attempt;
using testing::kLarge;
using testing::Node;
using testing::Source;
using testing::SumOf;
using testing::Target;

class FoldVersionsTest : public ::testing::Test {
 protected:
  void TearDown() override { EXPECT_THAT(versions_.CheckInvariants(), IsOk()); }
  VersionText Text(bool root, int first, int second) {
    VersionText text = versions_.Begin(root);
    text.AddSource(Source(first), Attempt(first));
    text.AddSource(Source(second), Attempt(second));
    return text;
  }

  PlanInputs inputs_{Target(), SumOf(2), Node(1), /*root_up=*/true, {}, kLarge};
  SourceTable sources_{inputs_};
  FoldVersions versions_{inputs_, sources_};
};

TEST_F(FoldVersionsTest, AVersionIsAFunctionOfTheInputsInTheirOrder) {
  const SlotVersion version = versions_.Of(Text(false, 0, 1));
  EXPECT_EQ(versions_.Of(Text(false, 0, 1)), version);
  EXPECT_NE(versions_.Of(Text(false, 1, 0)), version);
  EXPECT_NE(versions_.Of(Text(true, 0, 1)), version);
  EXPECT_NE(versions_.OfLeaf(Source(0), Attempt(0)), versions_.OfLeaf(Source(0), Attempt(0, 2)));
}

TEST_F(FoldVersionsTest, AStarDistinguishesHeldFromInlineSources) {
  VersionText held = versions_.Begin(true);
  held.AddStarSource(true, Source(0), Attempt(0));
  VersionText inlined = versions_.Begin(true);
  inlined.AddStarSource(false, Source(0), Attempt(0));
  EXPECT_NE(versions_.Of(held), versions_.Of(inlined));
}

TEST_F(FoldVersionsTest, ADroppedRootHasANewVersionAtItsNodeOnly) {
  const SlotVersion first = versions_.OfRoot(Text(true, 0, 1), Node(1));
  versions_.OnRootDropped(Node(1), first);
  const SlotVersion second = versions_.OfRoot(Text(true, 0, 1), Node(1));
  EXPECT_NE(second, first);
  EXPECT_EQ(versions_.OfRoot(Text(true, 0, 1), Node(2)), first);
  versions_.OnRootDropped(Node(1), second);
  EXPECT_NE(versions_.OfRoot(Text(true, 0, 1), Node(1)), second);
}

}  // namespace
}  // namespace phalanx::directory
