#include "src/directory/directory_core.h"

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "src/common/testing/status_matchers.h"
#include "src/directory/directory_core_harness.h"

namespace phalanx::directory {
namespace {

using ::phalanx::testing::IsOk;
using ::phalanx::testing::StatusIs;
using testing::Harness;
using ::testing::HasSubstr;
using testing::Id;

const ObjectId x = Id("x");

TEST(DirectoryCoreTest, ACreatedGenerationIsAdoptedAndItsCreatorIsTold) {
  Harness h;
  const NodeKey a = h.Up("a");
  h.Create(a, x);
  EXPECT_EQ(h.LastVerdict(a), v1::Verdict::ADOPTED);
}

TEST(DirectoryCoreTest, ASmallPutTakesOneMessageAndOneVerdict) {
  Harness h;
  const NodeKey a = h.Up("a");
  h.Clear();
  h.Create(a, x, {.inline_bytes = "seven b"});
  ASSERT_EQ(h.messages(), 1u);
  EXPECT_EQ(h.LastVerdict(a), v1::Verdict::ADOPTED);
}

TEST(DirectoryCoreTest, ASmallGetTakesOneMessageAndBringsTheBytes) {
  Harness h;
  const NodeKey a = h.Up("a");
  const NodeKey b = h.Up("b");
  h.Create(a, x, {.inline_bytes = "seven b", .metadata = "f32[7]"});
  h.Clear();
  h.Want(b, x);
  ASSERT_EQ(h.messages(), 1u);
  const v1::Deliver deliver = h.Last(b, v1::ShardMessage::kDeliver)->deliver();
  EXPECT_EQ(deliver.inline_bytes(), "seven b");
  EXPECT_EQ(deliver.info().metadata(), "f32[7]");
  EXPECT_EQ(h.Describe(x).summary().complete_copies(), 2u);
}

TEST(DirectoryCoreTest, ALargeGetIsAssignedToTheHolder) {
  Harness h;
  const NodeKey a = h.Up("a");
  const NodeKey b = h.Up("b");
  const Generation g = h.Create(a, x, {.size = 1 << 20, .complete = true});
  h.Want(b, x);
  const v1::Assign assign = h.Last(b, v1::ShardMessage::kAssign)->assign();
  EXPECT_EQ(assign.sender().node(), a.node);
  EXPECT_EQ(assign.sender_address(), h.Info(a).address());
  EXPECT_EQ(assign.generation().sequence(), g.sequence);
  EXPECT_EQ(assign.slices(), 1u);
  h.Finish(b, x);
  EXPECT_EQ(h.Describe(x).summary().complete_copies(), 2u);
}

TEST(DirectoryCoreTest, AWantBeforeThePutIsAnsweredByThePut) {
  Harness h;
  const NodeKey a = h.Up("a");
  const NodeKey b = h.Up("b");
  h.Want(b, x);
  EXPECT_TRUE(h.Received(b).empty());
  h.Create(a, x);
  EXPECT_EQ(h.SenderOf(b, x), a);
}

TEST(DirectoryCoreTest, AFailedPullIsAssignedToAnotherSenderUnderANewPlan) {
  Harness h;
  const NodeKey a = h.Up("a");
  const NodeKey b = h.Up("b");
  const NodeKey c = h.Up("c");
  h.Create(a, x, {.complete = true});
  h.Want(b, x);
  h.Finish(b, x);
  h.Want(c, x);
  const auto first = h.LastAssign(c, x);
  h.Fail(c, x);
  const auto second = h.LastAssign(c, x);
  EXPECT_NE(second->sender, first->sender);
  EXPECT_GT(second->plan, first->plan);
}

}  // namespace
}  // namespace phalanx::directory
