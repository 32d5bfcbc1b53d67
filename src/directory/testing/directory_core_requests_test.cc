// Deletes, wants, evictions, drains, and bad input.
#include <algorithm>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "src/common/testing/status_matchers.h"
#include "src/directory/core/directory_core.h"
#include "src/directory/core/validate.h"
#include "src/directory/testing/directory_core_harness.h"

namespace phalanx::directory {
namespace {

using ::phalanx::testing::IsOk;
using ::phalanx::testing::StatusIs;
using testing::Harness;
using ::testing::HasSubstr;
using testing::Id;

const ObjectId x = Id("x");

// -------------------------------------------------------------------------------------------
// deletes

TEST(DeleteTest, IsConfirmedToTheRequesterAndCanBeRepeated) {
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

TEST(DeleteTest, ALateMessageAboutTheGenerationIsRefused) {
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

TEST(DeleteTest, StandbyGenerationsAreRefusedToo) {
  Harness h;
  const NodeKey a = h.Up("a");
  const NodeKey b = h.Up("b");
  const Generation first = h.Create(a, x);
  const Generation second = h.Create(b, x);
  h.Delete(a, x);
  EXPECT_EQ(h.LastVerdict(b), v1::Verdict::DELETED);
  h.Confirm(b, x, second);
  const v1::DeleteReply reply = h.Last(a, v1::ShardMessage::kDeleteReply)->delete_reply();
  ASSERT_EQ(reply.generations_size(), 2) << "who asked is to remember all that was deleted";
  EXPECT_EQ(FromProto(reply.generations(0)), first);
  EXPECT_EQ(FromProto(reply.generations(1)), second);
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

TEST(DeleteTest, TheTombstoneStaysUntilAllNodesHaveConfirmedAndTenMinutesAtLeast) {
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

TEST(DeleteTest, AConfirmationIsOfItsGenerationAlone) {
  Harness h;
  const NodeKey a = h.Up("a");
  const Generation first = h.Create(a, x, {.complete = true});
  h.Delete(a, x);
  const Generation second = h.Create(a, x, {.complete = true});
  h.Delete(a, x);
  h.Confirm(a, x, first);
  h.Advance(absl::Minutes(11));
  EXPECT_TRUE(h.Known(x)) << "the second generation is not confirmed";
  h.Announce(a, x, second, {.complete = true});
  EXPECT_EQ(h.LastVerdict(a), v1::Verdict::DELETED);
  h.Confirm(a, x, second);
  EXPECT_FALSE(h.Known(x));
}

TEST(DeleteTest, ACopyThatIsNotRegisteredAgainNeedsNoConfirmation) {
  Harness h;
  const NodeKey a = h.Up("a");
  const NodeKey b = h.Up("b");
  const Generation g = h.Create(a, x, {.complete = true});
  h.Want(b, x);
  h.Finish(b, x);
  h.Delete(a, x);
  // The confirmations are lost with their sessions; b never got the order to drop its copy.
  for (const NodeKey& node : {a, b}) h.NewSession(node, /*had_session=*/true);
  h.RegisterCopy(b, x, g, {.primary = false});
  for (const NodeKey& node : {a, b}) h.RegisterEnd(node);
  h.Advance(absl::Minutes(11));
  EXPECT_TRUE(h.Known(x)) << "b was told again";
  h.Confirm(b, x, g);
  EXPECT_FALSE(h.Known(x)) << "a has nothing to confirm";
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

TEST(WantTest, AReceiverThatGivesUpIsRemovedAndItsReceiversGetAnotherSender) {
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

TEST(WantTest, AReceiverWithoutMemoryIsNoRelayAndOccupiesNoSender) {
  Harness h;
  const NodeKey a = h.Up("a");
  const NodeKey b = h.Up("b");
  const NodeKey c = h.Up("c");
  const Generation g = h.Create(a, x, {.complete = true});
  h.Want(b, x);
  h.Want(c, x);
  ASSERT_EQ(h.SenderOf(c, x), b);
  h.WantWithoutRoom(b, x, g);
  EXPECT_EQ(h.SenderOf(c, x), a);
  EXPECT_EQ(h.Describe(x).copies_size(), 2) << "b is not listed";
  h.Clear();
  h.Advance(absl::Minutes(1));
  h.Finish(c, x);
  EXPECT_EQ(h.Count(b, v1::ShardMessage::kAssign), 0) << "not before it asks again";
  h.Want(b, x);
  EXPECT_EQ(h.Count(b, v1::ShardMessage::kAssign), 1);
}

TEST(WantTest, ANodeWithoutMemoryIsNotifiedOfTheObjectsEnd) {
  Harness h;
  const NodeKey a = h.Up("a");
  const NodeKey b = h.Up("b");
  const Generation g = h.Create(a, x, {.complete = true});
  h.Want(b, x);
  h.WantWithoutRoom(b, x, g);
  h.Delete(a, x);
  EXPECT_EQ(h.LastGone(b), v1::Gone::DELETED);
}

TEST(WantTest, ALackOfMemoryEndsWithTheGeneration) {
  Harness h;
  const NodeKey a = h.Up("a");
  const NodeKey b = h.Up("b");
  const NodeKey c = h.Up("c");
  const Generation g = h.Create(a, x, {});
  h.Want(b, x);
  h.WantWithoutRoom(b, x, g);
  h.Create(c, x, {.complete = true});
  h.Withdraw(a, x, g);
  EXPECT_EQ(h.SenderOf(b, x), c) << "the other may be smaller";
}

TEST(WantTest, ADeliveryWithoutMemoryIsNotRepeatedUntilThereIsSome) {
  Harness h;
  const NodeKey a = h.Up("a");
  const NodeKey b = h.Up("b");
  const Generation g = h.Create(a, x, {.inline_bytes = "s"});
  h.Want(b, x);
  h.Clear();
  h.Withdraw(b, x, g);
  h.WantWithoutRoom(b, x, g);
  EXPECT_EQ(h.messages(), 0u);
  EXPECT_EQ(h.Describe(x).copies_size(), 1);
  h.Want(b, x);
  EXPECT_EQ(h.Count(b, v1::ShardMessage::kDeliver), 1);
}

TEST(WantTest, ALackOfMemoryThatCrossesADeliveryIsAnsweredByItsWithdrawalOnly) {
  Harness h;
  const NodeKey a = h.Up("a");
  const NodeKey b = h.Up("b");
  const Generation g = h.Create(a, x, {.inline_bytes = "s"});
  h.Want(b, x);
  h.Clear();
  h.WantWithoutRoom(b, x, g);
  EXPECT_EQ(h.messages(), 0u);
  h.Withdraw(b, x, g);
  h.WantWithoutRoom(b, x, g);
  EXPECT_EQ(h.messages(), 0u);
  EXPECT_EQ(h.Describe(x).waiting_size(), 1);
}

TEST(WantTest, AWantBeyondTheLimitIsRefused) {
  DirectoryOptions options;
  options.max_waiting = 2;
  Harness h(false, options);
  const NodeKey a = h.Up("a");
  h.Want(a, Id("1"));
  h.Want(a, Id("2"));
  h.Want(a, Id("3"));
  const v1::Gone gone = h.Last(a, v1::ShardMessage::kGone)->gone();
  EXPECT_EQ(gone.kind(), v1::Gone::REFUSED);
  EXPECT_EQ(gone.want(), 3u);
  EXPECT_THAT(gone.reason(), HasSubstr("ResourceExhausted"));
  h.Unwant(a, Id("1"));
  h.Clear();
  h.Want(a, Id("3"));
  EXPECT_EQ(h.messages(), 0u);
}

TEST(WantTest, ARegisteredWantBeyondTheLimitLeavesNothing) {
  DirectoryOptions options;
  options.max_waiting = 1;
  Harness h(false, options);
  const NodeKey a = h.Up("a");
  h.Want(a, Id("1"));
  h.RegisterWant(a, x);
  EXPECT_EQ(h.LastGone(a), v1::Gone::REFUSED);
  EXPECT_FALSE(h.Known(x));
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

TEST(EvictTest, ADeliveredCopyCountsOnceItsNodeConfirmsIt) {
  Harness h;
  const NodeKey a = h.Up("a");
  const NodeKey b = h.Up("b");
  const NodeKey c = h.Up("c");
  const Generation g = h.Create(a, x, {.inline_bytes = "s"});
  h.Want(b, x);
  h.Want(c, x);
  h.Down(a);
  EXPECT_FALSE(Granted(h, b, x, g));
  ASSERT_EQ(h.Count(c, v1::ShardMessage::kFetch), 1);
  const v1::Fetch fetch = h.Last(c, v1::ShardMessage::kFetch)->fetch();
  EXPECT_TRUE(fetch.only_confirm());
  v1::PullReport here;
  here.set_object_id(fetch.object_id());
  ToProto(g, here.mutable_generation());
  here.set_plan_id(fetch.plan_id());
  here.set_complete(true);
  h.Report(c, here);
  EXPECT_TRUE(Granted(h, b, x, g));
  EXPECT_FALSE(Granted(h, c, x, g));
}

TEST(EvictTest, NeitherCachedBytesNorUnreachableCopiesCount) {
  Harness h;
  const NodeKey a = h.Up("a");
  const NodeKey b = h.Up("b");
  const Generation g = h.Create(a, x, {.inline_bytes = "inline"});
  EXPECT_FALSE(Granted(h, a, x, g));
  h.Want(b, x);
  EXPECT_FALSE(Granted(h, a, x, g)) << "b may not be able to keep what it was sent";
  h.Want(b, x);
  EXPECT_FALSE(Granted(h, a, x, g)) << "that b asks again confirms nothing";
  EXPECT_TRUE(Granted(h, b, x, g));
  const Generation y = h.Create(a, Id("y"), {.complete = true});
  h.Want(b, Id("y"));
  h.Finish(b, Id("y"));
  h.Connected(b, false);
  EXPECT_FALSE(Granted(h, a, Id("y"), y));
  h.Connected(b, true);
  EXPECT_TRUE(Granted(h, a, Id("y"), y));
}

TEST(EvictTest, ACopyThatTheShardDoesNotCountIsEvicted) {
  Harness h;
  const NodeKey a = h.Up("a");
  EXPECT_TRUE(Granted(h, a, x, Generation{a, 77}));
}

// -------------------------------------------------------------------------------------------
// leaving

TEST(DrainTest, SoleCopiesAreFetchedElsewhereAndTheCountIsReported) {
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

TEST(DrainTest, ADeliveredCopyCountsWhenItsNodeHasConfirmedIt) {
  Harness h;
  const NodeKey a = h.Up("a");
  const NodeKey b = h.Up("b");
  const Generation g = h.Create(a, x, {.inline_bytes = "s"});
  h.Want(b, x);
  v1::NodeMessage drain;
  drain.mutable_drain_request();
  PHALANX_ASSERT_OK(h.Send(a, drain));
  EXPECT_EQ(h.Last(a, v1::ShardMessage::kDrainStatus)->drain_status().objects_left(), 1u);
  ASSERT_EQ(h.Count(b, v1::ShardMessage::kFetch), 1);
  v1::PullReport kept = h.ReportOf(b, x, true);
  ToProto(g, kept.mutable_generation());
  kept.set_object_id(x.binary().data(), ObjectId::kSize);
  kept.set_plan_id(h.Last(b, v1::ShardMessage::kFetch)->fetch().plan_id());
  h.Report(b, kept);
  EXPECT_EQ(h.Last(a, v1::ShardMessage::kDrainStatus)->drain_status().objects_left(), 0u);
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

TEST(DrainTest, WithoutANodeToTakeThemTheReasonIsReported) {
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

TEST(DrainTest, AnObjectThatFitsNowhereDoesNotHoldUpTheOthers) {
  Harness h;
  const NodeKey a = h.Up("a");
  const NodeKey b = h.Up("b");
  v1::NodeInfo info = h.Info(b);
  info.set_capacity_bytes(1 << 20);
  h.core().NodeUp(info, h.now());
  h.RegisterEnd(b);
  const ObjectId first = std::min(Id("1"), Id("2"));
  const ObjectId second = std::max(Id("1"), Id("2"));
  h.Create(a, first, {.size = 1 << 30, .complete = true});
  h.Create(a, second, {.size = 1000, .complete = true});
  h.Clear();
  v1::NodeMessage drain;
  drain.mutable_drain_request();
  PHALANX_ASSERT_OK(h.Send(a, drain));
  ASSERT_EQ(h.Count(b, v1::ShardMessage::kFetch), 1);
  EXPECT_EQ(h.Last(b, v1::ShardMessage::kFetch)->fetch().object_id(), second.binary());
  const v1::DrainStatus status = h.Last(a, v1::ShardMessage::kDrainStatus)->drain_status();
  EXPECT_EQ(status.objects_left(), 2u);
  EXPECT_THAT(status.message(), HasSubstr(first.hex()));
  const NodeKey c = h.Up("c");
  EXPECT_EQ(h.Count(c, v1::ShardMessage::kFetch), 1) << "it has room for the first";
}

class RefusalTest : public ::testing::Test {
 protected:
  RefusalTest() {
    h_.Create(a_, x, {.complete = true});
    v1::NodeMessage drain;
    drain.mutable_drain_request();
    PHALANX_EXPECT_OK(h_.Send(a_, drain));
  }
  int Asked(const NodeKey& node) { return h_.Count(node, v1::ShardMessage::kFetch); }
  void Refuse(const NodeKey& node) {
    h_.Want(node, x, /*keep=*/true);
    h_.Unwant(node, x);
  }

  Harness h_;
  const NodeKey a_ = h_.Up("a");
  const NodeKey b_ = h_.Up("b");
};

TEST_F(RefusalTest, ATargetThatRefusesIsAskedAgainAfterAPauseThatDoubles) {
  ASSERT_EQ(Asked(b_), 1);
  for (int pause = 100; pause <= 1600; pause *= 2) {
    h_.Clear();
    Refuse(b_);
    EXPECT_EQ(Asked(b_), 0) << "not at once";
    h_.Advance(absl::Milliseconds(pause - 1));
    EXPECT_EQ(Asked(b_), 0);
    h_.Advance(absl::Milliseconds(1));
    EXPECT_EQ(Asked(b_), 1) << "after " << pause << " ms";
  }
}

TEST_F(RefusalTest, AnotherTakesTheObjectThatATargetRefuses) {
  const NodeKey c = h_.Up("c");
  h_.Clear();
  Refuse(b_);
  EXPECT_EQ(Asked(b_), 0);
  ASSERT_EQ(Asked(c), 1);
  h_.Want(c, x, /*keep=*/true);
  h_.Finish(c, x);
  EXPECT_EQ(h_.Last(a_, v1::ShardMessage::kDrainStatus)->drain_status().objects_left(), 0u);
}

TEST_F(RefusalTest, ATargetThatWaitsForMemoryIsNotWaitedFor) {
  const NodeKey c = h_.Up("c");
  h_.Want(b_, x, /*keep=*/true);
  h_.Clear();
  h_.WantWithoutRoom(b_, x, Generation{a_, 1});
  EXPECT_EQ(Asked(c), 1);
  h_.Advance(absl::Seconds(1));
  EXPECT_EQ(Asked(b_), 0) << "it is told when its memory has come";
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

TEST(DrainTest, ANodeWhoseDrainANewSessionEndedIsASenderLikeAnyOther) {
  Harness h;
  const NodeKey a = h.Up("a");
  const NodeKey b = h.Up("b");
  const NodeKey c = h.Up("c");
  const NodeKey d = h.Up("d");
  const Generation g = h.Create(a, x, {.complete = true});
  h.Want(b, x);
  h.Finish(b, x);
  // While c pulls, x has a relay tree, which outlives the session.
  h.Want(c, x);
  const NodeKey busy = h.SenderOf(c, x);
  const NodeKey free = busy == a ? b : a;
  v1::NodeMessage drain;
  drain.mutable_drain_request();
  PHALANX_ASSERT_OK(h.Send(free, drain));
  h.NewSession(free, /*had_session=*/true);
  h.RegisterCopy(free, x, g, {.primary = free == a});
  h.RegisterEnd(free);
  h.Want(d, x);
  EXPECT_EQ(h.SenderOf(d, x), free);
}

// -------------------------------------------------------------------------------------------
// bad input

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

TEST(BadInputTest, IsReportedWithNodeAndObject) {
  Harness h;
  const NodeKey a = h.Up("a");
  const std::string at = absl::StrCat("node a, object ", x.hex(), ": ");
  h.Create(a, x, {.slices = 65});
  EXPECT_THAT(std::string(h.status().message()), HasSubstr(absl::StrCat(at, "info.slices")));
  h.Evict(a, x, Generation{a, 0});
  EXPECT_THAT(std::string(h.status().message()), HasSubstr(absl::StrCat(at, "generation")));
  const Generation g = h.Create(a, x);
  h.Announce(a, x, g, {.size = 1});
  EXPECT_THAT(std::string(h.status().message()), ::testing::StartsWith(absl::StrCat(at, "info")));
  v1::NodeMessage message;
  message.mutable_want()->set_object_id("short");
  EXPECT_THAT(std::string(h.Send(a, message).message()),
              ::testing::StartsWith("node a: object_id"));
}

TEST(DeferredTest, MoreThanMayWaitAreAnsweredAtOnce) {
  Harness h(/*learning=*/true, {.max_deferred = 1});
  const NodeKey a = h.Up("a");
  h.Query(a, Id("waits"), 1);
  EXPECT_EQ(h.Count(a, v1::ShardMessage::kQueryReply), 0);
  h.Query(a, Id("one too many"), 2);
  EXPECT_THAT(h.status(), IsOk());
  ASSERT_EQ(h.Count(a, v1::ShardMessage::kQueryReply), 1);
  const v1::QueryReply query = h.Last(a, v1::ShardMessage::kQueryReply)->query_reply();
  EXPECT_EQ(query.request_id(), 2u);
  EXPECT_EQ(query.code(), static_cast<int>(absl::StatusCode::kResourceExhausted));
  h.Delete(a, Id("another"), 3);
  ASSERT_EQ(h.Count(a, v1::ShardMessage::kDeleteReply), 1);
  const v1::DeleteReply reply = h.Last(a, v1::ShardMessage::kDeleteReply)->delete_reply();
  EXPECT_EQ(reply.request_id(), 3u);
  EXPECT_EQ(reply.code(), static_cast<int>(absl::StatusCode::kResourceExhausted));
  h.Advance(absl::Seconds(3));
  EXPECT_EQ(h.Last(a, v1::ShardMessage::kQueryReply)->query_reply().request_id(), 1u);
}

TEST(BadInputTest, MessagesOfANodeThatIsDownAreIgnored) {
  Harness h;
  const NodeKey a = h.Up("a");
  h.Down(a);
  h.Create(a, x);
  EXPECT_THAT(h.status(), IsOk());
  EXPECT_FALSE(h.Known(x));
}

// -------------------------------------------------------------------------------------------
// copies on several hosts

// A node that is away may have room when it returns: the request waits for it, but not for ever.
class CopiesAwaited : public ::testing::Test {
 protected:
  CopiesAwaited() {
    h_.Create(a_, x, {.complete = true});
    h_.Connected(b_, false);
    v1::NodeMessage message;
    v1::BroadcastRequest& request = *message.mutable_broadcast_request();
    ToProto(x, request.mutable_object_id());
    request.set_request_id(1);
    request.set_copies(2);
    PHALANX_EXPECT_OK(h_.Send(a_, message));
    EXPECT_EQ(h_.Count(a_, v1::ShardMessage::kBroadcastReply), 0);
  }
  // Expects the answer that the one host that is left has a copy.
  void ExpectAnswer() {
    const auto reply = h_.Last(a_, v1::ShardMessage::kBroadcastReply);
    ASSERT_TRUE(reply.has_value());
    EXPECT_EQ(reply->broadcast_reply().code(), 0) << reply->broadcast_reply().message();
    EXPECT_EQ(reply->broadcast_reply().nodes(), 1u);
  }

  Harness h_;
  const NodeKey a_ = h_.Up("a", {{"host", "1"}});
  const NodeKey b_ = h_.Up("b", {{"host", "2"}});
};

TEST_F(CopiesAwaited, AreNotWaitedForWhenTheNodeThatIsAwayIsDeclaredDead) {
  h_.Down(b_);
  ExpectAnswer();
}

TEST_F(CopiesAwaited, AreNotWaitedForWhenTheNodeThatIsAwayDrains) {
  v1::NodeMessage message;
  message.mutable_drain_request();
  PHALANX_EXPECT_OK(h_.Send(b_, message));
  ExpectAnswer();
}

}  // namespace
}  // namespace phalanx::directory
