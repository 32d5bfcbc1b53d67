#include "src/directory/directory_core.h"

#include <algorithm>
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

// -------------------------------------------------------------------------------------------
// adoption

TEST(AdoptionTest, AnotherGenerationStandsByWhileTheAdoptedOneIsNotComplete) {
  Harness h;
  const NodeKey a = h.Up("a");
  const NodeKey b = h.Up("b");
  const Generation first = h.Create(a, x);
  h.Create(b, x);
  EXPECT_EQ(h.LastVerdict(b), v1::Verdict::STANDBY);
  EXPECT_EQ(h.Last(b, v1::ShardMessage::kVerdict)->verdict().adopted().sequence(), first.sequence);
  h.Seal(b, x, Generation{b, 2});
  EXPECT_EQ(h.LastVerdict(b), v1::Verdict::STANDBY) << "being complete first does not count";
  h.Seal(a, x, first);
  EXPECT_EQ(h.LastVerdict(b), v1::Verdict::SUPERSEDED);
}

TEST(AdoptionTest, AnotherGenerationIsSupersededByAnAdoptedAndCompleteOne) {
  Harness h;
  const NodeKey a = h.Up("a");
  const NodeKey b = h.Up("b");
  h.Create(a, x, {.size = 100, .complete = true, .metadata = "a's"});
  const Generation second = h.Create(b, x, {.size = 100, .complete = true});
  const v1::Verdict verdict = h.Last(b, v1::ShardMessage::kVerdict)->verdict();
  EXPECT_EQ(verdict.kind(), v1::Verdict::SUPERSEDED);
  EXPECT_EQ(verdict.info().metadata(), "a's");
  EXPECT_EQ(h.Describe(x).summary().conflicts(), 0u) << "of the same size: the same task again";
  h.Withdraw(b, x, second);
  EXPECT_EQ(h.Describe(x).copies_size(), 1);
}

TEST(AdoptionTest, AConflictIsASealedAttemptOfAnotherSize) {
  Harness h;
  const NodeKey a = h.Up("a");
  const NodeKey b = h.Up("b");
  const NodeKey c = h.Up("c");
  h.Create(a, x, {.size = 100, .complete = true});
  h.Create(b, x, {.size = 101, .complete = true});
  EXPECT_EQ(h.Describe(x).summary().conflicts(), 1u);
  const Generation late = h.Create(c, x, {.size = 102, .complete = false});
  EXPECT_EQ(h.Describe(x).summary().conflicts(), 1u) << "its Put is not acknowledged yet";
  h.Seal(c, x, late);
  EXPECT_EQ(h.Describe(x).summary().conflicts(), 2u);
  h.Query(a, x, 7);
  EXPECT_EQ(h.Last(a, v1::ShardMessage::kQueryReply)->query_reply().conflicts(), 2u);
}

TEST(AdoptionTest, WhenTheCreatorDiesACompleteStandbyGoesBeforeAnEarlierPartialOne) {
  Harness h;
  const NodeKey a = h.Up("a");
  const NodeKey b = h.Up("b");
  const NodeKey c = h.Up("c");
  const NodeKey r = h.Up("r");
  h.Create(a, x);
  h.Create(b, x);
  const Generation sealed = h.Create(c, x, {.complete = true});
  h.Down(a);
  EXPECT_EQ(h.LastVerdict(c), v1::Verdict::ADOPTED);
  EXPECT_EQ(h.LastVerdict(b), v1::Verdict::SUPERSEDED);
  h.Want(r, x);
  EXPECT_EQ(h.LastAssign(r, x)->generation, sealed);
}

TEST(AdoptionTest, AmongPartialStandbysTheSmallerTokenIsNext) {
  Harness h;
  const NodeKey a = h.Up("a");
  const NodeKey b = h.Up("b");
  const NodeKey c = h.Up("c");
  h.Create(a, x);
  h.Create(c, x);
  h.Create(b, x);
  h.Down(a);
  EXPECT_EQ(h.LastVerdict(b), v1::Verdict::ADOPTED);
  EXPECT_EQ(h.LastVerdict(c), v1::Verdict::STANDBY);
}

TEST(AdoptionTest, AGenerationWhoseCreatorWithdrewIsVoidForWhoHasPartsOfIt) {
  Harness h;
  const NodeKey a = h.Up("a");
  const NodeKey b = h.Up("b");
  const NodeKey c = h.Up("c");
  const Generation g = h.Create(a, x);
  h.Want(b, x);
  h.Withdraw(a, x, g);
  EXPECT_EQ(h.LastGone(b), v1::Gone::VOID);
  EXPECT_EQ(h.Describe(x).summary().waiting(), 1u) << "the want stays";
  h.Create(c, x);
  EXPECT_EQ(h.SenderOf(b, x), c);
}

TEST(AdoptionTest, AReceiverThatGotEverythingFromADeadCreatorSavesTheGeneration) {
  Harness h;
  const NodeKey a = h.Up("a");
  const NodeKey b = h.Up("b");
  const NodeKey c = h.Up("c");
  const Generation g = h.Create(a, x);
  h.Want(b, x);
  h.Want(c, x);
  h.Down(a);
  EXPECT_EQ(h.LastGone(b), std::nullopt) << "its report may be on the way";
  h.Finish(b, x);
  EXPECT_EQ(h.LastGone(b), std::nullopt);
  EXPECT_EQ(h.SenderOf(c, x), b);
  EXPECT_EQ(h.LastAssign(c, x)->generation, g);
}

TEST(AdoptionTest, AReceiverThatDidNotFinishLetsTheGenerationGo) {
  Harness h;
  const NodeKey a = h.Up("a");
  const NodeKey b = h.Up("b");
  const NodeKey c = h.Up("c");
  h.Create(a, x);
  h.Want(b, x);
  h.Want(c, x);
  h.Down(a);
  h.Fail(b, x);
  EXPECT_EQ(h.LastGone(b), std::nullopt) << "c may have finished under an earlier plan";
  h.Progress(c, x, 1000, 1e6);
  EXPECT_EQ(h.LastGone(b), v1::Gone::VOID);
  EXPECT_EQ(h.LastGone(c), v1::Gone::VOID);
}

TEST(AdoptionTest, AReceiverThatSaysNothingLetsTheGenerationGoAfterALease) {
  Harness h;
  const NodeKey a = h.Up("a");
  const NodeKey b = h.Up("b");
  h.Create(a, x);
  h.Want(b, x);
  h.Down(a);
  h.Advance(absl::Milliseconds(1999));
  EXPECT_EQ(h.LastGone(b), std::nullopt);
  h.Advance(absl::Milliseconds(1));
  EXPECT_EQ(h.LastGone(b), v1::Gone::VOID);
}

TEST(AdoptionTest, RePutNeverReplacesAGenerationWithALiveCompleteCopy) {
  Harness h;
  const NodeKey a = h.Up("a");
  const NodeKey b = h.Up("b");
  const NodeKey c = h.Up("c");
  const Generation g = h.Create(a, x, {.complete = true});
  h.Want(b, x);
  h.Finish(b, x);
  h.Down(a);
  h.Create(c, x, {.complete = true});
  EXPECT_EQ(h.LastVerdict(c), v1::Verdict::SUPERSEDED);
  EXPECT_EQ(h.Describe(x).summary().generation().sequence(), g.sequence);
}

TEST(AdoptionTest, TheHolderThatReturnsEndsTheLoss) {
  Harness h;
  const NodeKey a = h.Up("a");
  const NodeKey b = h.Up("b");
  const Generation g = h.Create(a, x, {.complete = true});
  h.Want(b, x);
  h.Fail(b, x);
  h.Down(a);
  ASSERT_EQ(h.LastGone(b), v1::Gone::LOST);
  h.Advance(absl::Seconds(5));
  h.NewSession(a);
  h.RegisterCopy(a, x, g, {.sender = {}});
  h.RegisterEnd(a);
  EXPECT_EQ(h.SenderOf(b, x), a);
  EXPECT_EQ(h.Count(a, v1::ShardMessage::kVerdict), 1) << "a copy that stays is not answered";
}

TEST(AdoptionTest, AHolderThatReturnsAfterARePutIsSuperseded) {
  Harness h;
  const NodeKey a = h.Up("a");
  const NodeKey b = h.Up("b");
  const Generation g = h.Create(a, x, {.complete = true});
  h.Down(a);
  h.Create(b, x, {.complete = true});
  ASSERT_EQ(h.LastVerdict(b), v1::Verdict::ADOPTED);
  h.NewSession(a);
  h.RegisterCopy(a, x, g, {.sender = {}});
  h.RegisterEnd(a);
  EXPECT_EQ(h.LastVerdict(a), v1::Verdict::SUPERSEDED);
}

TEST(AdoptionTest, AHolderThatReturnsWhileTheRePutIsWrittenWins) {
  Harness h;
  const NodeKey a = h.Up("a");
  const NodeKey b = h.Up("b");
  const NodeKey r = h.Up("r");
  const Generation g = h.Create(a, x, {.complete = true});
  h.Down(a);
  h.Create(b, x);
  h.Want(r, x);
  h.NewSession(a);
  h.RegisterCopy(a, x, g, {.sender = {}});
  h.RegisterEnd(a);
  EXPECT_EQ(h.LastVerdict(b), v1::Verdict::SUPERSEDED);
  EXPECT_EQ(h.LastGone(r), v1::Gone::VOID);
  EXPECT_EQ(h.LastAssign(r, x)->generation, g);
}

TEST(AdoptionTest, AnnouncingTheSameGenerationAgainIsHarmless) {
  Harness h;
  const NodeKey a = h.Up("a");
  const Generation g = h.Create(a, x);
  h.Announce(a, x, g, {});
  EXPECT_EQ(h.LastVerdict(a), v1::Verdict::ADOPTED);
  h.Seal(a, x, g);
  h.Seal(a, x, g);
  EXPECT_EQ(h.Describe(x).summary().complete_copies(), 1u);
}

// -------------------------------------------------------------------------------------------
// sessions and restarts

TEST(SessionTest, AnEarlierLifeOfANodeEndsWhenALaterOneComesUp) {
  Harness h;
  const NodeKey a = h.Up("a");
  const NodeKey b = h.Up("b");
  h.Create(a, x, {.complete = true});
  h.Want(b, x);
  h.Fail(b, x);
  v1::NodeInfo next = h.Info(a);
  next.mutable_key()->set_incarnation(2);
  h.core().NodeUp(next, h.now());
  h.Advance(absl::ZeroDuration());
  EXPECT_EQ(h.LastGone(b), v1::Gone::LOST);
  EXPECT_EQ(h.Describe(x).copies_size(), 1);
}

TEST(SessionTest, WhatANewSessionDoesNotRegisterIsGoneAtItsEnd) {
  Harness h;
  const NodeKey a = h.Up("a");
  const NodeKey b = h.Up("b");
  const Generation g = h.Create(a, x, {.complete = true});
  h.Create(a, Id("y"), {.complete = true});
  h.NewSession(a);
  h.Want(b, x);
  EXPECT_EQ(h.SenderOf(b, x), NodeKey()) << "not offered before it is told again";
  h.RegisterCopy(a, x, g, {.sender = {}});
  EXPECT_EQ(h.SenderOf(b, x), a);
  h.RegisterEnd(a);
  EXPECT_FALSE(h.Known(Id("y")));
}

TEST(SessionTest, ReceiversOfANodeThatOpensANewSessionKeepTheirPulls) {
  Harness h;
  const NodeKey a = h.Up("a");
  const NodeKey b = h.Up("b");
  const Generation g = h.Create(a, x, {.complete = true});
  h.Want(b, x);
  h.Clear();
  h.NewSession(a);
  h.RegisterCopy(a, x, g, {.sender = {}});
  h.RegisterEnd(a);
  EXPECT_EQ(h.messages(), 0u);
  h.Finish(b, x);
  EXPECT_EQ(h.Describe(x).summary().complete_copies(), 2u);
}

TEST(RestartTest, TheShardLearnsCopiesWantsAndPullsFromItsNodes) {
  Harness h(/*learning=*/true);
  const NodeKey a = h.Up("a");
  const NodeKey b = h.Up("b");
  const NodeKey c = h.Up("c");
  const Generation g = h.Create(a, x, {.complete = true});
  h.Want(b, x);
  h.Want(c, x);
  h.RestartShard();
  h.Clear();
  // In the worst order: the receivers first.
  h.NewSession(c, true);
  h.RegisterCopy(c, x, g, {.complete = false, .primary = false, .sender = b});
  h.RegisterWant(c, x);
  h.RegisterEnd(c);
  h.NewSession(b, true);
  h.RegisterCopy(b, x, g, {.complete = false, .primary = false, .sender = a});
  h.RegisterWant(b, x);
  h.RegisterEnd(b);
  h.NewSession(a, true);
  h.RegisterCopy(a, x, g, {.sender = {}});
  h.RegisterEnd(a);
  EXPECT_EQ(h.messages(), 0u) << "their pulls go on";
  h.Finish(b, x);
  h.Finish(c, x);
  EXPECT_EQ(h.Describe(x).summary().complete_copies(), 3u);
}

TEST(RestartTest, WithinTheFirstLeaseNothingIsDecidedFromAbsence) {
  Harness h(/*learning=*/true);
  const NodeKey a = h.Up("a");
  const NodeKey b = h.Up("b");
  h.Delete(a, x, 1);
  h.Query(a, x, 2);
  EXPECT_TRUE(h.Received(a).empty());
  h.NewSession(b, true);
  h.RegisterCopy(b, x, Generation{b, 5}, {.sender = {}});
  h.RegisterEnd(b);
  EXPECT_EQ(h.Last(a, v1::ShardMessage::kDeleteReply)->delete_reply().code(), 0);
  EXPECT_EQ(h.LastGone(b), v1::Gone::DELETED);
  EXPECT_TRUE(h.Last(a, v1::ShardMessage::kQueryReply)->query_reply().deleted());
}

TEST(RestartTest, AfterTheFirstLeaseAbsenceDecides) {
  Harness h(/*learning=*/true);
  const NodeKey a = h.Up("a");
  h.Delete(a, x, 1);
  h.Query(a, Id("y"), 2);
  h.Advance(absl::Seconds(2));
  EXPECT_EQ(h.Last(a, v1::ShardMessage::kDeleteReply)->delete_reply().code(),
            static_cast<int>(absl::StatusCode::kNotFound));
  EXPECT_FALSE(h.Last(a, v1::ShardMessage::kQueryReply)->query_reply().known());
}

TEST(RestartTest, DeferredRequestsOfAnEndedSessionAreNotAnswered) {
  Harness h(/*learning=*/true);
  const NodeKey a = h.Up("a");
  h.Delete(a, x, 1);
  h.NewSession(a);
  h.RegisterEnd(a);
  h.Delete(a, x, 2);
  h.Advance(absl::Seconds(2));
  EXPECT_EQ(h.Count(a, v1::ShardMessage::kDeleteReply), 1);
}

TEST(RestartTest, AFreshShardAdoptsAtOnceAndSaysSoWhenNobodyCanContradictIt) {
  Harness h(/*learning=*/true);
  const NodeKey a = h.Up("a");
  const NodeKey b = h.Up("b");
  const Generation g = h.Create(a, x, {.complete = true});
  h.Want(b, x);
  EXPECT_EQ(h.LastAssign(b, x)->generation, g);
  EXPECT_EQ(h.LastVerdict(a), v1::Verdict::UNKNOWN);
  h.Advance(absl::Seconds(2));
  EXPECT_EQ(h.LastVerdict(a), v1::Verdict::ADOPTED);
}

TEST(RestartTest, WhoIsToldThatItIsAdoptedIsNotSupersededByAnOlderOneThatReturns) {
  Harness h(/*learning=*/true);
  const NodeKey a = h.Up("a");
  const NodeKey b = h.Up("b");
  h.Create(a, x, {.complete = true});
  h.NewSession(b, /*had_session=*/true);
  h.RegisterCopy(b, x, Generation{b, 9}, {.sender = {}});
  h.RegisterEnd(b);
  EXPECT_EQ(h.Count(a, v1::ShardMessage::kVerdict), 1);
  EXPECT_EQ(h.LastVerdict(a), v1::Verdict::SUPERSEDED);
}

TEST(RestartTest, WhatWasServedWithoutAPromiseGivesWayToWhatWasAdoptedBefore) {
  Harness h(/*learning=*/true);
  const NodeKey a = h.Up("a");
  const NodeKey b = h.Up("b");
  const NodeKey c = h.Up("c");
  h.Create(a, x, {.complete = true});
  h.Want(c, x);
  h.NewSession(b, true);
  h.RegisterCopy(b, x, Generation{b, 9}, {.sender = {}});
  h.RegisterEnd(b);
  EXPECT_EQ(h.LastVerdict(a), v1::Verdict::SUPERSEDED);
  EXPECT_EQ(h.LastGone(c), v1::Gone::VOID);
  EXPECT_EQ(h.SenderOf(c, x), b);
}

TEST(RestartTest, AShardWithAPastAdoptsNothingNewBeforeItHasHeardEverybody) {
  Harness h(/*learning=*/true);
  const NodeKey a = h.Up("a");
  const NodeKey b = h.Up("b");
  h.NewSession(a, /*had_session=*/true);
  h.RegisterEnd(a);
  h.Create(a, x, {.complete = true});
  const Generation y = h.Create(a, Id("y"), {.complete = true});
  EXPECT_EQ(h.LastVerdict(a), v1::Verdict::UNKNOWN);
  h.NewSession(b, true);
  h.RegisterCopy(b, x, Generation{b, 9}, {.sender = {}});
  h.RegisterEnd(b);
  EXPECT_EQ(h.LastVerdict(a), v1::Verdict::SUPERSEDED);
  h.Advance(absl::Seconds(2));
  EXPECT_EQ(h.LastVerdict(a), v1::Verdict::ADOPTED);
  EXPECT_EQ(h.Last(a, v1::ShardMessage::kVerdict)->verdict().generation().sequence(), y.sequence);
}

TEST(RestartTest, AdoptedBeatsProvisionalInEitherOrder) {
  for (const bool adopted_first : {true, false}) {
    Harness h(/*learning=*/true);
    const NodeKey a = h.Up("a");
    const NodeKey b = h.Up("b");
    const auto adopted = [&h, &b] {
      h.NewSession(b);
      h.RegisterCopy(b, x, Generation{b, 9}, {.complete = false, .sender = {}});
      h.RegisterEnd(b);
    };
    if (adopted_first) adopted();
    h.NewSession(a);
    h.RegisterCopy(a, x, Generation{a, 1}, {.adopted = false, .complete = true, .sender = {}});
    h.RegisterEnd(a);
    if (!adopted_first) adopted();
    EXPECT_EQ(h.LastVerdict(a), v1::Verdict::STANDBY) << adopted_first;
    EXPECT_EQ(h.Describe(x).summary().generation().sequence(), 9u);
  }
}

TEST(RestartTest, AmongAdoptedOnesCompleteBeatsPartialAndThenTheSmallerTokenWins) {
  Harness h(/*learning=*/true);
  const NodeKey a = h.Up("a");
  const NodeKey b = h.Up("b");
  const NodeKey c = h.Up("c");
  const auto add = [&h](const NodeKey& node, bool complete) {
    h.NewSession(node, true);
    h.RegisterCopy(node, x, Generation{node, 9}, {.complete = complete, .sender = {}});
    h.RegisterEnd(node);
    return h.Describe(x).summary().generation().creator().node();
  };
  EXPECT_EQ(add(b, false), b.node);
  EXPECT_EQ(add(a, false), a.node) << "the smaller token";
  EXPECT_EQ(h.LastVerdict(b), v1::Verdict::STANDBY);
  EXPECT_EQ(add(c, true), c.node) << "complete";
  EXPECT_EQ(h.LastVerdict(a), v1::Verdict::SUPERSEDED);
  EXPECT_EQ(h.LastVerdict(b), v1::Verdict::SUPERSEDED);
}

TEST(RestartTest, ATombstoneOutlivesTheShard) {
  Harness h(/*learning=*/true);
  const NodeKey a = h.Up("a");
  const NodeKey b = h.Up("b");
  const Generation g{b, 9};
  h.NewSession(a, true);
  h.RegisterTombstone(a, x, g);
  h.RegisterEnd(a);
  h.NewSession(b, true);
  h.RegisterCopy(b, x, g, {.sender = {}});
  h.RegisterEnd(b);
  EXPECT_EQ(h.LastVerdict(b), v1::Verdict::DELETED);
  EXPECT_TRUE(h.Describe(x).summary().deleted());
}

TEST(RestartTest, ATombstoneThatComesAfterTheCopyDeletesIt) {
  Harness h(/*learning=*/true);
  const NodeKey a = h.Up("a");
  const NodeKey b = h.Up("b");
  const Generation g{b, 9};
  h.NewSession(b, true);
  h.RegisterCopy(b, x, g, {.sender = {}});
  h.RegisterEnd(b);
  h.NewSession(a, true);
  h.RegisterTombstone(a, x, g);
  h.RegisterEnd(a);
  EXPECT_EQ(h.LastGone(b), v1::Gone::DELETED);
}

// -------------------------------------------------------------------------------------------
// deletes

TEST(DeleteTest, IsConfirmedToWhoAsksAndMayBeAskedAgain) {
  Harness h;
  const NodeKey a = h.Up("a");
  h.Delete(a, x, 1);
  EXPECT_EQ(h.Last(a, v1::ShardMessage::kDeleteReply)->delete_reply().code(),
            static_cast<int>(absl::StatusCode::kNotFound));
  h.Create(a, x, {.complete = true});
  for (const uint64_t request : {2, 3}) {
    h.Delete(a, x, request);
    const v1::DeleteReply reply = h.Last(a, v1::ShardMessage::kDeleteReply)->delete_reply();
    EXPECT_EQ(reply.request_id(), request);
    EXPECT_EQ(reply.code(), 0);
  }
}

TEST(DeleteTest, LateWordOfTheGenerationIsRefused) {
  Harness h;
  const NodeKey a = h.Up("a");
  const NodeKey b = h.Up("b");
  const Generation g = h.Create(a, x);
  h.Want(b, x);
  const v1::PullReport late = h.ReportOf(b, x, true);
  h.Delete(b, x);
  h.Seal(a, x, g);
  h.Report(b, late);
  EXPECT_TRUE(h.Describe(x).summary().deleted());
  EXPECT_EQ(h.LastGone(b), v1::Gone::DELETED);
  h.Announce(a, x, g, {.complete = true});
  EXPECT_EQ(h.LastVerdict(a), v1::Verdict::DELETED);
}

TEST(DeleteTest, ThoseWhoStoodByAreRefusedToo) {
  Harness h;
  const NodeKey a = h.Up("a");
  const NodeKey b = h.Up("b");
  h.Create(a, x);
  const Generation second = h.Create(b, x);
  h.Delete(a, x);
  EXPECT_EQ(h.LastVerdict(b), v1::Verdict::DELETED);
  h.Announce(b, x, second, {});
  EXPECT_EQ(h.LastVerdict(b), v1::Verdict::DELETED);
}

TEST(DeleteTest, InlineBytesGoWithTheObject) {
  Harness h;
  const NodeKey a = h.Up("a");
  const NodeKey b = h.Up("b");
  h.Create(a, x, {.inline_bytes = "secret"});
  h.Delete(a, x);
  h.Want(b, x);
  EXPECT_EQ(h.Count(b, v1::ShardMessage::kDeliver), 0);
  v1::GetStatusResponse status;
  h.core().FillStatus(h.now(), &status);
  EXPECT_EQ(status.inline_bytes(), 0u);
}

TEST(DeleteTest, TheIdMayBePutAgain) {
  Harness h;
  const NodeKey a = h.Up("a");
  const NodeKey b = h.Up("b");
  h.Create(a, x, {.complete = true});
  h.Delete(a, x);
  const Generation again = h.Create(a, x, {.complete = true});
  EXPECT_EQ(h.LastVerdict(a), v1::Verdict::ADOPTED);
  h.Want(b, x);
  EXPECT_EQ(h.LastAssign(b, x)->generation, again);
}

TEST(DeleteTest, TheTombstoneStaysUntilEverybodyHasConfirmedAndTenMinutesAtLeast) {
  Harness h;
  const NodeKey a = h.Up("a");
  const NodeKey b = h.Up("b");
  const Generation g = h.Create(a, x, {.complete = true});
  h.Want(b, x);
  h.Finish(b, x);
  h.Delete(a, x);
  h.Confirm(a, x, g);
  h.Advance(absl::Minutes(11));
  EXPECT_TRUE(h.Describe(x).summary().deleted()) << "b has not confirmed";
  h.Confirm(b, x, g);
  EXPECT_FALSE(h.Known(x));

  const Generation next = h.Create(a, x, {.complete = true});
  h.Delete(a, x);
  h.Confirm(a, x, next);
  h.Advance(absl::Minutes(9));
  EXPECT_TRUE(h.Known(x)) << "too young";
  h.Advance(absl::Minutes(1));
  EXPECT_FALSE(h.Known(x));
}

TEST(DeleteTest, TombstonesAreBounded) {
  DirectoryOptions options;
  options.max_tombstones = 10;
  Harness h(false, options);
  const NodeKey a = h.Up("a");
  for (int i = 0; i < 30; ++i) {
    h.Create(a, Id("o" + std::to_string(i)), {.complete = true});
    h.Delete(a, Id("o" + std::to_string(i)));
  }
  h.Advance(absl::Milliseconds(1));
  v1::GetStatusResponse status;
  h.core().FillStatus(h.now(), &status);
  EXPECT_EQ(status.tombstones(), 10u);
  EXPECT_TRUE(h.Known(Id("o29")));
  EXPECT_FALSE(h.Known(Id("o0")));
}

// ------------------------------------------------------------------------------------------- wants

TEST(WantTest, AnUnwantedReceiverIsStruckAndItsReceiversGetAnotherSender) {
  Harness h;
  const NodeKey a = h.Up("a");
  const NodeKey b = h.Up("b");
  const NodeKey c = h.Up("c");
  h.Create(a, x, {.complete = true});
  h.Want(b, x);
  h.Want(c, x);
  ASSERT_EQ(h.SenderOf(c, x), b);
  h.Unwant(b, x);
  EXPECT_EQ(h.SenderOf(c, x), a);
  EXPECT_EQ(h.Describe(x).copies_size(), 2);
}

TEST(WantTest, BeyondTheLimitANodeIsToldSo) {
  DirectoryOptions options;
  options.max_waiting = 2;
  Harness h(false, options);
  const NodeKey a = h.Up("a");
  h.Want(a, Id("1"));
  h.Want(a, Id("2"));
  h.Want(a, Id("3"));
  const v1::Gone gone = h.Last(a, v1::ShardMessage::kGone)->gone();
  EXPECT_EQ(gone.kind(), v1::Gone::REFUSED);
  EXPECT_THAT(gone.reason(), HasSubstr("ResourceExhausted"));
  h.Unwant(a, Id("1"));
  h.Clear();
  h.Want(a, Id("3"));
  EXPECT_EQ(h.messages(), 0u);
}

TEST(WantTest, AnOldPlansFailureDoesNotEndTheNewPlan) {
  Harness h;
  const NodeKey a = h.Up("a");
  const NodeKey b = h.Up("b");
  const NodeKey c = h.Up("c");
  h.Create(a, x, {.complete = true});
  h.Want(b, x);
  h.Want(c, x);
  v1::PullReport old = h.ReportOf(c, x, false);
  old.set_code(static_cast<int>(absl::StatusCode::kUnavailable));
  h.Down(b);
  ASSERT_EQ(h.SenderOf(c, x), a);
  h.Clear();
  h.Report(c, old);
  EXPECT_EQ(h.messages(), 0u);
  EXPECT_EQ(h.Describe(x).copies(1).pulling(), true);
}

TEST(WantTest, KeepIsCarriedToTheAssignAndTheDeliver) {
  Harness h;
  const NodeKey a = h.Up("a");
  const NodeKey b = h.Up("b");
  h.Create(a, x, {.complete = true});
  h.Create(a, Id("small"), {.inline_bytes = "s"});
  h.Want(b, x, /*keep=*/true);
  h.Want(b, Id("small"), /*keep=*/true);
  EXPECT_TRUE(h.LastAssign(b, x)->keep);
  EXPECT_TRUE(h.Last(b, v1::ShardMessage::kDeliver)->deliver().keep());
  h.Finish(b, x);
  EXPECT_TRUE(h.Describe(x).copies(1).primary());
}

TEST(WantTest, TheInlineCacheIsBoundedAndHoldersServeTheRest) {
  DirectoryOptions options;
  options.inline_cache_bytes = 100;
  Harness h(false, options);
  const NodeKey a = h.Up("a");
  const NodeKey b = h.Up("b");
  for (const char* name : {"1", "2", "3"}) {
    h.Create(a, Id(name), {.inline_bytes = std::string(40, 'i')});
  }
  h.Want(b, Id("3"));
  h.Want(b, Id("1"));
  EXPECT_EQ(h.Count(b, v1::ShardMessage::kDeliver), 1);
  EXPECT_EQ(h.SenderOf(b, Id("1")), a);
}

// -------------------------------------------------------------------------------------------
// eviction

bool Granted(Harness& h, const NodeKey& node, const ObjectId& id, const Generation& g) {
  h.Evict(node, id, g);
  return h.Last(node, v1::ShardMessage::kEvictReply)->evict_reply().granted();
}

TEST(EvictTest, TheLastCompleteCopyIsNotEvicted) {
  Harness h;
  const NodeKey a = h.Up("a");
  const NodeKey b = h.Up("b");
  const Generation g = h.Create(a, x, {.complete = true});
  h.Want(b, x);
  EXPECT_FALSE(Granted(h, a, x, g)) << "a partial copy does not count";
  h.Finish(b, x);
  EXPECT_TRUE(Granted(h, a, x, g));
  EXPECT_EQ(h.Describe(x).copies_size(), 1) << "a granted copy is struck";
  EXPECT_FALSE(Granted(h, b, x, g));
}

TEST(EvictTest, NeitherCachedBytesNorUnreachableCopiesCount) {
  Harness h;
  const NodeKey a = h.Up("a");
  const NodeKey b = h.Up("b");
  const Generation g = h.Create(a, x, {.inline_bytes = "inline"});
  EXPECT_FALSE(Granted(h, a, x, g));
  h.Want(b, x);
  EXPECT_FALSE(Granted(h, a, x, g)) << "b may not be able to keep what it was sent";
  EXPECT_TRUE(Granted(h, b, x, g));
  const Generation y = h.Create(a, Id("y"), {.complete = true});
  h.Want(b, Id("y"));
  h.Finish(b, Id("y"));
  h.Connected(b, false);
  EXPECT_FALSE(Granted(h, a, Id("y"), y));
  h.Connected(b, true);
  EXPECT_TRUE(Granted(h, a, Id("y"), y));
}

TEST(EvictTest, WhatTheShardDoesNotCountMayGo) {
  Harness h;
  const NodeKey a = h.Up("a");
  EXPECT_TRUE(Granted(h, a, x, Generation{a, 77}));
}

// -------------------------------------------------------------------------------------------
// leaving and prefetch

TEST(DrainTest, SoleCopiesAreFetchedElsewhereAndTheCountIsTold) {
  Harness h;
  const NodeKey a = h.Up("a");
  const NodeKey b = h.Up("b");
  for (const char* name : {"1", "2"}) h.Create(a, Id(name), {.complete = true});
  h.Create(a, Id("shared"), {.complete = true});
  h.Want(b, Id("shared"));
  h.Finish(b, Id("shared"));
  h.Clear();
  v1::NodeMessage drain;
  drain.mutable_drain_request();
  PHALANX_ASSERT_OK(h.Send(a, drain));
  EXPECT_EQ(h.Last(a, v1::ShardMessage::kDrainStatus)->drain_status().objects_left(), 2u);
  ASSERT_EQ(h.Count(b, v1::ShardMessage::kFetch), 2);
  EXPECT_TRUE(h.Last(b, v1::ShardMessage::kFetch)->fetch().keep());
  uint32_t left = 2;
  for (const char* name : {"1", "2"}) {
    h.Want(b, Id(name), /*keep=*/true);
    EXPECT_EQ(h.SenderOf(b, Id(name)), a) << "the only one who has it";
    h.Finish(b, Id(name));
    EXPECT_EQ(h.Last(a, v1::ShardMessage::kDrainStatus)->drain_status().objects_left(), --left);
  }
}

TEST(DrainTest, ATargetThatDiesIsReplaced) {
  Harness h;
  const NodeKey a = h.Up("a");
  const NodeKey b = h.Up("b");
  h.Create(a, x, {.complete = true});
  v1::NodeMessage drain;
  drain.mutable_drain_request();
  PHALANX_ASSERT_OK(h.Send(a, drain));
  ASSERT_EQ(h.Count(b, v1::ShardMessage::kFetch), 1);
  h.Down(b);
  EXPECT_THAT(h.Last(a, v1::ShardMessage::kDrainStatus)->drain_status().objects_left(), 1u);
  const NodeKey c = h.Up("c");
  EXPECT_EQ(h.Count(c, v1::ShardMessage::kFetch), 1);
}

TEST(DrainTest, WithNobodyToTakeThemItIsSaidWhy) {
  Harness h;
  const NodeKey a = h.Up("a");
  h.Create(a, x, {.complete = true});
  v1::NodeMessage drain;
  drain.mutable_drain_request();
  PHALANX_ASSERT_OK(h.Send(a, drain));
  const v1::DrainStatus status = h.Last(a, v1::ShardMessage::kDrainStatus)->drain_status();
  EXPECT_EQ(status.objects_left(), 1u);
  EXPECT_THAT(status.message(), HasSubstr("no other node"));
}

TEST(DrainTest, ALeavingNodeIsASenderOnlyWhenThereIsNoOther) {
  Harness h;
  const NodeKey a = h.Up("a");
  const NodeKey b = h.Up("b");
  const NodeKey c = h.Up("c");
  h.Create(a, x, {.complete = true});
  h.Want(b, x);
  h.Finish(b, x);
  v1::NodeMessage drain;
  drain.mutable_drain_request();
  PHALANX_ASSERT_OK(h.Send(a, drain));
  h.Want(c, x);
  EXPECT_EQ(h.SenderOf(c, x), b);
}

TEST(PrefetchTest, NamedNodesAreToldAndUnknownNamesReported) {
  Harness h;
  const NodeKey a = h.Up("a");
  const NodeKey b = h.Up("b");
  const NodeKey c = h.Up("c");
  h.Create(a, x, {.complete = true});
  v1::NodeMessage message;
  v1::PrefetchRequest& m = *message.mutable_prefetch_request();
  m.set_object_id(std::string(x.binary().data(), ObjectId::kSize));
  m.set_request_id(5);
  m.add_nodes("b");
  m.add_nodes("zed");
  PHALANX_ASSERT_OK(h.Send(c, message));
  EXPECT_EQ(h.Count(b, v1::ShardMessage::kFetch), 1);
  v1::PrefetchReply reply = h.Last(c, v1::ShardMessage::kPrefetchReply)->prefetch_reply();
  EXPECT_EQ(reply.nodes(), 1u);
  EXPECT_THAT(reply.message(), HasSubstr("zed"));
  m.clear_nodes();
  m.add_nodes("*");
  PHALANX_ASSERT_OK(h.Send(c, message));
  reply = h.Last(c, v1::ShardMessage::kPrefetchReply)->prefetch_reply();
  EXPECT_EQ(reply.code(), 0);
  EXPECT_EQ(reply.nodes(), 3u);
  EXPECT_EQ(h.Count(a, v1::ShardMessage::kFetch), 0) << "it has the object";
  EXPECT_EQ(h.Count(c, v1::ShardMessage::kFetch), 1);
}

// ------------------------------------------------------------------------------------------- tools
// and bad input

TEST(ToolsTest, AFinishedTreeCanBeDrawn) {
  Harness h;
  const NodeKey a = h.Up("a");
  const NodeKey b = h.Up("b");
  h.Create(a, x, {.size = 1000, .complete = true});
  h.Want(b, x);
  h.Advance(absl::Milliseconds(40));
  v1::PullReport report = h.ReportOf(b, x, true);
  report.set_bytes_received(1000);
  report.set_bytes_per_second(25'000);
  h.Report(b, report);
  h.Advance(absl::Seconds(9));
  const v1::CopyDescription copy = h.Describe(x).copies(1);
  EXPECT_EQ(copy.sender_name(), "a");
  EXPECT_FALSE(copy.pulling());
  EXPECT_EQ(copy.bytes_received(), 1000u);
  EXPECT_EQ(copy.elapsed_ns(), 40'000'000u);
}

TEST(ToolsTest, ListsPageInOrderOfIds) {
  Harness h;
  const NodeKey a = h.Up("a");
  for (int i = 0; i < 10; ++i) h.Create(a, Id(std::to_string(i)), {.complete = true});
  h.Delete(a, Id("3"));
  v1::ListObjectsRequest request;
  request.set_limit(4);
  std::vector<std::string> seen;
  while (true) {
    v1::ListObjectsResponse page;
    h.core().List(request, &page);
    for (const auto& object : page.objects()) seen.push_back(object.object_id());
    if (!page.more()) break;
    EXPECT_EQ(page.objects_size(), 4);
    request.set_after_object_id(seen.back());
  }
  EXPECT_EQ(seen.size(), 10u);
  EXPECT_TRUE(std::is_sorted(seen.begin(), seen.end()));
}

TEST(ToolsTest, AnUnknownObjectIsNotFound) {
  Harness h;
  v1::DescribeObjectResponse out;
  EXPECT_THAT(h.core().Describe(x, h.now(), &out), StatusIs(absl::StatusCode::kNotFound));
}

TEST(BadInputTest, IsRefusedAndChangesNothing) {
  Harness h;
  const NodeKey a = h.Up("a");
  const NodeKey b = h.Up("b");
  constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;
  EXPECT_THAT(h.Send(a, v1::NodeMessage()), StatusIs(kInvalid));

  v1::NodeMessage message;
  message.mutable_want()->set_object_id("short");
  EXPECT_THAT(h.Send(a, message), StatusIs(kInvalid, HasSubstr("object_id")));

  h.Announce(a, x, Generation{b, 1}, {});
  EXPECT_THAT(h.status(), StatusIs(kInvalid, HasSubstr("another node")));
  h.Announce(a, x, Generation{a, 0}, {});
  EXPECT_THAT(h.status(), StatusIs(kInvalid, HasSubstr("sequence")));
  h.Create(a, x, {.slices = 65});
  EXPECT_THAT(h.status(), StatusIs(kInvalid, HasSubstr("slices")));
  EXPECT_FALSE(h.Known(x));

  const Generation g = h.Create(a, x, {.size = 100});
  h.Seal(a, x, g, "not a hundred bytes");
  EXPECT_THAT(h.status(), StatusIs(kInvalid, HasSubstr("of 100")));
  h.Announce(a, x, g, {.size = 101});
  EXPECT_THAT(h.status(), StatusIs(kInvalid, HasSubstr("differs")));
  h.Want(b, x);
  h.Progress(b, x, 50, 1e6);
  v1::PullReport report = h.ReportOf(b, x, false);
  report.add_watermarks(101);
  h.Report(b, report);
  EXPECT_THAT(h.status(), StatusIs(kInvalid, HasSubstr("watermarks")));
  EXPECT_EQ(h.Describe(x).copies(1).watermarks(0), 50u);
}

TEST(BadInputTest, MessagesOfANodeThatIsDownAreIgnored) {
  Harness h;
  const NodeKey a = h.Up("a");
  h.Down(a);
  h.Create(a, x);
  EXPECT_THAT(h.status(), IsOk());
  EXPECT_FALSE(h.Known(x));
}

}  // namespace
}  // namespace phalanx::directory
