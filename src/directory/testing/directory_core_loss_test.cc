// The answers about objects without any copy.
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "src/directory/core/validate.h"
#include "src/directory/testing/directory_core_harness.h"

namespace phalanx::directory::testing {
namespace {

using ::testing::HasSubstr;

constexpr absl::Duration kLease = absl::Seconds(2);
const ObjectId x = Id("x");

std::string ReasonAt(Harness& h, const NodeKey& node) {
  const auto gone = h.Last(node, v1::ShardMessage::kGone);
  return gone.has_value() && gone->gone().kind() == v1::Gone::LOST ? gone->gone().reason() : "";
}

TEST(Loss, ALaterWantGetsTheNameOfTheLastHolder) {
  Harness h;
  const NodeKey a = h.Up("a");
  const NodeKey b = h.Up("b");
  h.Create(a, x, {.complete = true});
  h.Down(a);
  h.Want(b, x);
  EXPECT_THAT(ReasonAt(h, b), HasSubstr("node a"));
}

TEST(Loss, AWaitingNodeIsNotifiedOnce) {
  Harness h;
  const NodeKey a = h.Up("a");
  const NodeKey b = h.Up("b");
  const Generation g = h.Create(a, x);
  h.Want(b, x);
  h.Seal(a, x, g);
  h.Down(a);
  EXPECT_EQ(ReasonAt(h, b), "") << "it may have every byte";
  h.Fail(b, x);
  EXPECT_THAT(ReasonAt(h, b), HasSubstr("node a"));
  h.Clear();
  h.Advance(5 * kLease);
  EXPECT_EQ(ReasonAt(h, b), "");
}

TEST(Loss, APutEndsIt) {
  Harness h;
  const NodeKey a = h.Up("a");
  const NodeKey b = h.Up("b");
  const NodeKey c = h.Up("c");
  h.Create(a, x, {.complete = true});
  h.Down(a);
  h.Create(b, x, {.complete = true});
  h.Want(c, x);
  EXPECT_EQ(ReasonAt(h, c), "");
  EXPECT_EQ(h.SenderOf(c, x), b);
}

TEST(Loss, AReturningNodeEndsIt) {
  Harness h;
  const NodeKey a = h.Up("a");
  const NodeKey b = h.Up("b");
  const Generation g = h.Create(a, x, {.complete = true});
  h.Down(a);
  h.NewSession(a);
  h.RegisterCopy(a, x, g, {});
  h.RegisterEnd(a);
  h.Want(b, x);
  EXPECT_EQ(ReasonAt(h, b), "");
}

TEST(Loss, ADeletedObjectIsNotLost) {
  Harness h;
  const NodeKey a = h.Up("a");
  const NodeKey b = h.Up("b");
  h.Create(a, x, {.complete = true});
  h.Down(a);
  h.Want(b, x);
  h.Unwant(b, x);
  h.Create(b, x, {.complete = true});
  h.Delete(b, x);
  h.Want(b, x);
  EXPECT_EQ(h.LastGone(b), v1::Gone::DELETED);
}

TEST(Loss, ALossWhileTheShardLearnsIsReportedWhenLearningEnds) {
  Harness h(/*learning=*/true);
  const NodeKey a = h.Up("a");
  const NodeKey b = h.Up("b");
  const NodeKey c = h.Up("c");
  h.Create(a, x, {.complete = true});
  h.Down(a);
  h.Want(b, x);
  EXPECT_EQ(ReasonAt(h, b), "") << "there may be another copy";
  h.Advance(2 * kLease);
  EXPECT_THAT(ReasonAt(h, b), HasSubstr("node a"));
  h.Want(c, x);
  EXPECT_THAT(ReasonAt(h, c), HasSubstr("node a"));
}

TEST(Loss, AnObjectPutAgainWhileTheShardLearnsIsNotLost) {
  for (const bool restarted : {false, true}) {
    SCOPED_TRACE(restarted);
    Harness h(/*learning=*/true);
    const NodeKey a = h.Up("a");
    const NodeKey b = h.Up("b");
    const NodeKey c = h.Up("c");
    if (restarted) {
      h.NewSession(a, /*had_session=*/true);
      h.RegisterCopy(a, x, h.NewGeneration(a), {});
      h.RegisterEnd(a);
    } else {
      h.Create(a, x, {.complete = true});
    }
    h.Down(a);
    h.Create(b, x, {.complete = true});
    h.Want(c, x);
    h.Advance(2 * kLease);
    EXPECT_EQ(h.SenderOf(c, x), b);
    for (const v1::ShardMessage& message : h.Received(c)) {
      EXPECT_NE(message.gone().kind(), v1::Gone::LOST);
    }
  }
}

TEST(Loss, ADeleteWhileTheShardLearnsIsCarriedOutWhenItHas) {
  Harness h(/*learning=*/true);
  const NodeKey a = h.Up("a");
  const NodeKey b = h.Up("b");
  const NodeKey c = h.Up("c");
  const Generation g = h.Create(a, x, {.complete = true});
  h.Down(a);
  h.Want(c, x);
  h.Delete(b, x);
  h.Advance(2 * kLease);
  EXPECT_EQ(h.LastGone(c), v1::Gone::DELETED);
  h.NewSession(a);
  h.RegisterCopy(a, x, g, {});
  EXPECT_EQ(h.LastVerdict(a), v1::Verdict::DELETED);
}

// x is lost with a, while the shard learns or later; then b registers.
class LossAtAnyTime : public ::testing::TestWithParam<bool> {
 protected:
  LossAtAnyTime() {
    h_.Down(a_);
    h_.NewSession(b_, /*had_session=*/true);
  }

  Harness h_{/*learning=*/GetParam()};
  const NodeKey a_ = h_.Up("a");
  const NodeKey b_ = h_.Up("b");
  const NodeKey c_ = h_.Up("c");
  const Generation earlier_ = h_.NewGeneration(b_);
  const Generation lost_ = h_.Create(a_, x, {.complete = true});
};

// The earlier incarnation of the shard has confirmed the Delete to a node.
TEST_P(LossAtAnyTime, ATombstoneThatComesLaterSaysThatItWasDeleted) {
  h_.RegisterTombstone(b_, x, lost_);
  h_.RegisterEnd(b_);
  h_.Want(c_, x);
  h_.Advance(2 * kLease);
  EXPECT_EQ(h_.LastGone(c_), v1::Gone::DELETED);
  EXPECT_EQ(h_.Count(c_, v1::ShardMessage::kGone), 1) << "and not that it is lost";
}

TEST_P(LossAtAnyTime, ATombstoneOfAnEarlierGenerationSaysNothing) {
  h_.RegisterTombstone(b_, x, earlier_);
  h_.RegisterEnd(b_);
  h_.Want(c_, x);
  h_.Advance(2 * kLease);
  EXPECT_THAT(ReasonAt(h_, c_), HasSubstr("node a"));
  EXPECT_EQ(h_.Count(c_, v1::ShardMessage::kGone), 1);
}

TEST_P(LossAtAnyTime, AReturningPartialCopyDoesNotEndTheLoss) {
  h_.RegisterCopy(b_, x, lost_, {.complete = false, .primary = false, .pulled = true});
  h_.RegisterEnd(b_);
  h_.Advance(2 * kLease);
  h_.Want(c_, x);
  EXPECT_THAT(ReasonAt(h_, c_), HasSubstr("is left"));
  h_.Delete(c_, x);
  h_.Confirm(b_, x, lost_);
  const auto reply = h_.Last(c_, v1::ShardMessage::kDeleteReply);
  ASSERT_TRUE(reply.has_value());
  EXPECT_EQ(reply->delete_reply().code(), 0);
}

INSTANTIATE_TEST_SUITE_P(Learning, LossAtAnyTime, ::testing::Bool());

TEST(Loss, AnObjectDeletedWhileTheShardLearnsIsNotLost) {
  Harness h(/*learning=*/true);
  const NodeKey a = h.Up("a");
  const NodeKey b = h.Up("b");
  h.Create(a, x, {.complete = true});
  h.Delete(b, x);
  h.Want(b, x);
  h.Advance(2 * kLease);
  EXPECT_EQ(h.LastGone(b), v1::Gone::DELETED);
  EXPECT_EQ(h.Count(b, v1::ShardMessage::kGone), 1) << "and nothing else";
}

TEST(Loss, ALostObjectThatIsDeletedDoesNotReturn) {
  Harness h;
  const NodeKey a = h.Up("a");
  const NodeKey b = h.Up("b");
  const Generation g = h.Create(a, x, {.complete = true});
  h.Down(a);
  h.Delete(b, x);
  const auto reply = h.Last(b, v1::ShardMessage::kDeleteReply);
  ASSERT_TRUE(reply.has_value());
  EXPECT_EQ(reply->delete_reply().code(), 0) << reply->delete_reply().message();
  ASSERT_EQ(reply->delete_reply().generations_size(), 1);
  EXPECT_EQ(FromProto(reply->delete_reply().generations(0)), g);
  h.NewSession(a);
  h.RegisterCopy(a, x, g, {});
  EXPECT_EQ(h.LastVerdict(a), v1::Verdict::DELETED);
  h.RegisterEnd(a);
  h.Want(b, x);
  EXPECT_EQ(h.LastGone(b), v1::Gone::DELETED);
}

TEST(Loss, AWaitingNodeIsNotifiedOfTheDelete) {
  Harness h;
  const NodeKey a = h.Up("a");
  const NodeKey b = h.Up("b");
  const NodeKey c = h.Up("c");
  h.Create(a, x, {.complete = true});
  h.Down(a);
  h.Want(c, x);
  EXPECT_EQ(h.LastGone(c), v1::Gone::LOST);
  h.Delete(b, x);
  EXPECT_EQ(h.LastGone(c), v1::Gone::DELETED);
}

TEST(Loss, AWantOfAnIdThatWasNeverPutWaits) {
  Harness h;
  const NodeKey b = h.Up("b");
  h.Want(b, x);
  h.Advance(5 * kLease);
  EXPECT_FALSE(h.LastGone(b).has_value());
}

TEST(Loss, TheOldestAreForgotten) {
  DirectoryOptions options;
  options.max_lost = 1;
  Harness h(/*learning=*/false, options);
  const NodeKey a = h.Up("a");
  const NodeKey b = h.Up("b");
  h.Create(a, Id("y"), {.complete = true});
  h.Down(a);
  const NodeKey c = h.Up("c");
  h.Create(c, x, {.complete = true});
  h.Down(c);
  h.Want(b, x);
  EXPECT_THAT(ReasonAt(h, b), HasSubstr("node c"));
  h.Clear();
  h.Want(b, Id("y"));
  EXPECT_EQ(ReasonAt(h, b), "");
}

}  // namespace
}  // namespace phalanx::directory::testing
