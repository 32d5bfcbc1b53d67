#include "src/directory/core/directory_core.h"

#include <algorithm>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "src/common/testing/status_matchers.h"
#include "src/directory/testing/directory_core_harness.h"

namespace phalanx::directory {
namespace {

using ::phalanx::testing::IsOk;
using ::phalanx::testing::StatusIs;
using testing::Harness;
using ::testing::HasSubstr;
using testing::Id;

const ObjectId x = Id("x");

TEST(DirectoryCoreTest, ACreatedGenerationIsAdoptedAndItsCreatorNotified) {
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

TEST(DirectoryCoreTest, APutStandsByWhileTheOnlyCompleteCopyIsOutOfTouch) {
  for (const bool comes_back : {true, false}) {
    Harness h;
    const NodeKey a = h.Up("a");
    const NodeKey b = h.Up("b");
    h.Create(a, x, {.size = 1 << 20, .complete = true});
    h.Connected(a, false);
    const Generation second = h.Create(b, x, {.size = 1 << 20, .complete = true});
    EXPECT_EQ(h.LastVerdict(b), v1::Verdict::STANDBY);
    h.Evict(b, x, second);
    EXPECT_FALSE(h.Last(b, v1::ShardMessage::kEvictReply)->evict_reply().granted());
    if (comes_back) {
      h.Connected(a, true);
      EXPECT_EQ(h.LastVerdict(b), v1::Verdict::SUPERSEDED);
    } else {
      h.Down(a);
      EXPECT_EQ(h.LastVerdict(b), v1::Verdict::ADOPTED);
    }
    EXPECT_EQ(h.Describe(x).summary().complete_copies(), 1u);
  }
}

TEST(DirectoryCoreTest, AnAssignNamesTheWantThatItAnswers) {
  Harness h;
  const NodeKey a = h.Up("a");
  const NodeKey b = h.Up("b");
  h.Create(a, x, {.size = 1 << 20, .complete = true});
  const auto answered = [&] { return h.Last(b, v1::ShardMessage::kAssign)->assign().want(); };
  h.Want(b, x);
  EXPECT_EQ(answered(), 1u);
  h.Unwant(b, x);
  h.Want(b, x);
  EXPECT_EQ(answered(), 2u);
  h.Want(b, x);
  EXPECT_EQ(answered(), 3u) << "who asks twice takes his first question for answered";
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

TEST(AdoptionTest, AWithdrawnGenerationIsVoidForNodesWithPartsOfIt) {
  Harness h;
  const NodeKey a = h.Up("a");
  const NodeKey b = h.Up("b");
  const NodeKey c = h.Up("c");
  const Generation g = h.Create(a, x);
  h.Want(b, x);
  h.Withdraw(a, x, g);
  h.Fail(b, x, absl::StatusCode::kAborted);
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

TEST(AdoptionTest, AReceiverThatGotEverythingFromAWriterThatAbortedSavesTheGeneration) {
  Harness h;
  const NodeKey a = h.Up("a");
  const NodeKey b = h.Up("b");
  const NodeKey c = h.Up("c");
  const Generation g = h.Create(a, x);
  h.Want(b, x);
  h.Want(c, x);
  h.Withdraw(a, x, g);
  EXPECT_EQ(h.LastGone(b), std::nullopt) << "it may have shown the whole object to somebody";
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

TEST(AdoptionTest, APauseOfTheShardIsNoPartOfTheWaitForAReport) {
  Harness h;
  const NodeKey a = h.Up("a");
  const NodeKey b = h.Up("b");
  h.Create(a, x);
  h.Want(b, x);
  h.Down(a);
  h.core().NotePause(h.now() + absl::Seconds(30));
  h.Advance(absl::Seconds(30));
  h.Finish(b, x);
  EXPECT_EQ(h.LastGone(b), std::nullopt) << "b's report lay on the stream while the shard stood";
  EXPECT_TRUE(h.Known(x));
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

TEST(SessionTest, CopiesThatANewSessionDoesNotRegisterAreRemovedAtItsEnd) {
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

TEST(RestartTest, ACreatorThatPullsItsWithdrawnObjectIsNoWriter) {
  Harness h(/*learning=*/true);
  const NodeKey a = h.Up("a");
  const NodeKey b = h.Up("b");
  const Generation g = h.Create(a, x);
  h.Want(b, x);
  h.Finish(b, x);
  h.Withdraw(a, x, g);
  h.Want(a, x);
  ASSERT_EQ(h.SenderOf(a, x), b);
  h.NewSession(a, true);
  h.RegisterCopy(a, x, g, {.complete = false, .primary = false, .pulled = true});
  h.RegisterWant(a, x);
  h.Clear();
  h.RegisterEnd(a);
  EXPECT_EQ(h.Count(a, v1::ShardMessage::kAssign), 1);
}

TEST(FirstLifeTest, AnUnknownObjectIsAbsentFromTheStart) {
  Harness h(/*learning=*/true, {.first_life = true});
  const NodeKey a = h.Up("a");
  h.Delete(a, x, 1);
  EXPECT_EQ(h.Last(a, v1::ShardMessage::kDeleteReply)->delete_reply().code(),
            static_cast<int>(absl::StatusCode::kNotFound));
  h.Query(a, x, 2);
  EXPECT_FALSE(h.Last(a, v1::ShardMessage::kQueryReply)->query_reply().known());
}

TEST(RestartTest, WithinTheFirstLeaseNothingIsDecidedFromAbsence) {
  Harness h(/*learning=*/true);
  const NodeKey a = h.Up("a"), b = h.Up("b");
  h.Delete(a, x, 1);
  h.Query(a, x, 2);
  EXPECT_TRUE(h.Received(a).empty());
  h.NewSession(b, true);
  h.RegisterCopy(b, x, Generation{b, 5}, {.sender = {}});
  h.RegisterEnd(b);
  EXPECT_EQ(h.LastGone(b), v1::Gone::DELETED);
  h.Confirm(b, x, Generation{b, 5});
  EXPECT_EQ(h.Count(a, v1::ShardMessage::kDeleteReply), 0) << "nodes to come can have copies";
  h.Advance(absl::Seconds(2));
  const auto reply = h.Last(a, v1::ShardMessage::kDeleteReply);
  ASSERT_TRUE(reply.has_value());
  EXPECT_EQ(reply->delete_reply().code(), 0);
  EXPECT_TRUE(h.Last(a, v1::ShardMessage::kQueryReply)->query_reply().deleted());
}

TEST(RestartTest, AShardLearnsUntilEveryConnectedNodeHasRegistered) {
  Harness h(/*learning=*/true);
  const NodeKey a = h.Up("a");
  const NodeKey b = h.Up("b");
  h.NewSession(b, /*had_session=*/true);
  h.Query(a, Id("y"), 1);
  h.Create(a, x, {.complete = true});
  h.Advance(absl::Seconds(3));
  EXPECT_TRUE(h.Received(a).empty()) << "b has much to register, and is not done";
  h.RegisterCopy(b, x, Generation{b, 5}, {.sender = {}});
  h.RegisterEnd(b);
  EXPECT_EQ(h.LastVerdict(a), v1::Verdict::SUPERSEDED) << "b's had been adopted before";
  EXPECT_EQ(h.Describe(x).summary().generation().sequence(), 5u);
  EXPECT_FALSE(h.Last(a, v1::ShardMessage::kQueryReply)->query_reply().known());
}

TEST(RestartTest, ANodeThatDiesWhileItRegistersIsNotWaitedFor) {
  Harness h(/*learning=*/true);
  const NodeKey a = h.Up("a");
  const NodeKey b = h.Up("b");
  h.NewSession(b, /*had_session=*/true);
  h.Query(a, x, 1);
  h.Advance(absl::Seconds(3));
  EXPECT_TRUE(h.Received(a).empty());
  h.Down(b);
  EXPECT_EQ(h.Count(a, v1::ShardMessage::kQueryReply), 1);
}

TEST(RestartTest, ANodeThatRegistersForEverIsWaitedForOnlySoLong) {
  Harness h(/*learning=*/true);
  const NodeKey a = h.Up("a");
  h.NewSession(h.Up("b"), /*had_session=*/true);
  h.Query(a, x, 1);
  h.Advance(absl::Seconds(61));
  EXPECT_TRUE(h.Received(a).empty());
  h.Advance(absl::Seconds(1));
  EXPECT_EQ(h.Count(a, v1::ShardMessage::kQueryReply), 1);
}

TEST(RestartTest, APauseOfTheShardIsNoPartOfTheLeaseInWhichItLearns) {
  Harness h(/*learning=*/true);
  const NodeKey a = h.Up("a");
  h.Query(a, x, 1);
  h.core().NotePause(h.now() + absl::Seconds(30));
  h.Advance(absl::Seconds(30));
  EXPECT_TRUE(h.Received(a).empty()) << "who was to be heard waits on the streams";
  h.Advance(absl::Seconds(2));
  EXPECT_EQ(h.Count(a, v1::ShardMessage::kQueryReply), 1);
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

TEST(RestartTest, AFreshShardAdoptsAtOnceAndSendsAdoptedWhenLearningEnds) {
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

TEST(RestartTest, NoCreatorIsSentAdoptedBeforeSuperseded) {
  Harness h(/*learning=*/true);
  const NodeKey a = h.Up("a");
  const NodeKey b = h.Up("b");
  h.Create(a, x, {.complete = true});
  h.NewSession(b, /*had_session=*/true);
  h.RegisterCopy(b, x, Generation{b, 9}, {.sender = {}});
  h.RegisterEnd(b);
  EXPECT_EQ(h.LastVerdict(a), v1::Verdict::STANDBY);
  h.Advance(absl::Seconds(5));
  EXPECT_EQ(h.LastVerdict(a), v1::Verdict::SUPERSEDED);
  EXPECT_EQ(h.Count(a, v1::ShardMessage::kVerdict), 2);
}

TEST(RestartTest, AProvisionalGenerationGivesWayToOneAdoptedBefore) {
  Harness h(/*learning=*/true);
  const NodeKey a = h.Up("a");
  const NodeKey b = h.Up("b");
  const NodeKey c = h.Up("c");
  h.Create(a, x, {.complete = true});
  h.Want(c, x);
  h.NewSession(b, true);
  h.RegisterCopy(b, x, Generation{b, 9}, {.sender = {}});
  h.RegisterEnd(b);
  EXPECT_EQ(h.LastVerdict(a), v1::Verdict::STANDBY);
  EXPECT_EQ(h.LastGone(c), v1::Gone::VOID);
  EXPECT_EQ(h.SenderOf(c, x), b);
}

TEST(RestartTest, ARestartedShardAdoptsNothingNewBeforeAllNodesHaveRegistered) {
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
  EXPECT_EQ(h.LastVerdict(a), v1::Verdict::STANDBY);
  h.Clear();
  h.Advance(absl::Seconds(2));
  for (const v1::ShardMessage& message : h.Received(a)) {
    const bool is_y = message.verdict().generation().sequence() == y.sequence;
    EXPECT_EQ(message.verdict().kind(), is_y ? v1::Verdict::ADOPTED : v1::Verdict::SUPERSEDED);
  }
  EXPECT_EQ(h.Count(a, v1::ShardMessage::kVerdict), 2);
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
  EXPECT_NE(h.LastVerdict(a), v1::Verdict::SUPERSEDED) << "c's may have been deleted";
  h.Advance(absl::Seconds(5));
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

// A node that was disconnected during the Delete registers first, with the deleted generation.
TEST(RestartTest, ATombstoneSparesAGenerationAdoptedAfterTheDelete) {
  for (const bool told_by_its_holder : {true, false}) {
    Harness h(/*learning=*/true);
    const NodeKey late = h.Up("late");
    const NodeKey holder = h.Up("holder");
    const NodeKey other = h.Up("other");
    const Generation deleted{late, 9};
    const Generation put_after{holder, 99};
    h.NewSession(late, true);
    h.RegisterCopy(late, x, deleted, {.sender = {}});
    h.RegisterEnd(late);
    h.NewSession(holder, true);
    h.RegisterCopy(holder, x, put_after, {.sender = {}});
    if (told_by_its_holder) h.RegisterTombstone(holder, x, deleted);
    h.RegisterEnd(holder);
    h.NewSession(other, true);
    if (!told_by_its_holder) h.RegisterTombstone(other, x, deleted);
    h.RegisterEnd(other);
    EXPECT_EQ(h.LastGone(late), v1::Gone::DELETED);
    EXPECT_EQ(h.LastVerdict(holder), v1::Verdict::UNKNOWN) << "it goes on as it was";
    EXPECT_EQ(h.Describe(x).summary().generation().creator().node(), holder.node);
    EXPECT_FALSE(h.Describe(x).summary().deleted());
    h.Advance(absl::Seconds(5));
    EXPECT_EQ(h.LastVerdict(holder), v1::Verdict::UNKNOWN);
  }
}

// The same if the later generation registers first and is not sealed: then the deleted one
// displaces it.
TEST(RestartTest, ATombstoneSparesALaterPutThatALateHolderDisplaced) {
  Harness h(/*learning=*/true);
  const NodeKey late = h.Up("late");
  const NodeKey writer = h.Up("writer");
  const NodeKey other = h.Up("other");
  const Generation deleted{late, 9};
  const Generation put_after{writer, 99};
  h.NewSession(writer, true);
  h.RegisterCopy(writer, x, put_after, {.complete = false, .sender = {}});
  h.RegisterEnd(writer);
  h.NewSession(late, true);
  h.RegisterCopy(late, x, deleted, {.sender = {}});
  h.RegisterEnd(late);
  h.NewSession(other, true);
  h.RegisterTombstone(other, x, deleted);
  h.RegisterEnd(other);
  EXPECT_NE(h.LastVerdict(writer), v1::Verdict::SUPERSEDED);
  EXPECT_EQ(h.Describe(x).summary().generation().creator().node(), writer.node);
}

TEST(RestartTest, APutAfterADeleteIsNotSupersededByTheGenerationThatItsNodeDeleted) {
  Harness h(/*learning=*/true);
  const NodeKey late = h.Up("late");
  const NodeKey holder = h.Up("holder");
  const Generation deleted{late, 9};
  h.NewSession(late, true);
  h.RegisterCopy(late, x, deleted, {.sender = {}});
  h.RegisterEnd(late);
  h.NewSession(holder, true);
  h.RegisterCopy(holder, x, Generation{holder, 99}, {.adopted = false, .sender = {}});
  h.RegisterTombstone(holder, x, deleted);
  h.RegisterEnd(holder);
  EXPECT_EQ(h.LastGone(late), v1::Gone::DELETED);
  EXPECT_EQ(h.LastVerdict(holder), v1::Verdict::UNKNOWN);
  h.Advance(absl::Seconds(5));
  EXPECT_EQ(h.LastVerdict(holder), v1::Verdict::ADOPTED);
}

TEST(RestartTest, OfTwoThatWereAdoptedOneIsSupersededWhenNoTombstoneCanComeAnyMore) {
  Harness h(/*learning=*/true);
  const NodeKey a = h.Up("a");
  const NodeKey b = h.Up("b");
  for (const NodeKey& node : {a, b}) {
    h.NewSession(node, true);
    h.RegisterCopy(node, x, Generation{node, 9}, {.sender = {}});
    h.RegisterEnd(node);
  }
  EXPECT_EQ(h.LastVerdict(b), v1::Verdict::UNKNOWN);
  h.Advance(absl::Seconds(5));
  EXPECT_EQ(h.LastVerdict(b), v1::Verdict::SUPERSEDED);
}

TEST(RestartTest, OldTombstonesOfANodeDoNotPushOutANewDelete) {
  Harness h(/*learning=*/true);
  const NodeKey a = h.Up("a");
  const NodeKey b = h.Up("b");
  const NodeKey c = h.Up("c");
  const Generation g{b, 99};
  h.NewSession(a, true);
  h.RegisterCopy(a, x, g, {.sender = {}});
  h.RegisterEnd(a);
  h.Delete(a, x);
  h.NewSession(b, true);
  for (uint64_t i = 0; i < 200; ++i) h.RegisterTombstone(b, x, Generation{b, i});
  h.RegisterEnd(b);
  h.NewSession(c, true);
  h.RegisterCopy(c, x, g, {.sender = {}});
  h.RegisterEnd(c);
  EXPECT_EQ(h.LastVerdict(c), v1::Verdict::DELETED);
}

}  // namespace
}  // namespace phalanx::directory
