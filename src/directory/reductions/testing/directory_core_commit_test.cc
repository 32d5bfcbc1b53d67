// A node got the order to commit a result, and is fenced before the shard has its report that the
// result is sealed. The node can have answered its clients from the result, so the shard computes
// no other until it knows the outcome.
#include <string>

#include "absl/time/time.h"
#include "gtest/gtest.h"
#include "src/directory/core/directory_core.h"
#include "src/directory/core/validate.h"
#include "src/directory/reductions/testing/directory_core_reduce_harness.h"
#include "src/directory/testing/directory_core_harness.h"

namespace phalanx::directory {
namespace {

using testing::Bytes;
using testing::kTarget;

class CommitTest : public testing::ReduceTest {
 protected:
  // Sources on nodes 0 to 2, the root on node 3 with the order to commit; nodes 0 and 3 request the
  // result.
  void Commit() {
    AddNodes(4);
    for (int i = 0; i < 3; ++i) Put(i, i);
    Reduce(3, 3);
    root_ = *FoldAt(3);
    result_ = Announce(3, root_);
    Report(3, root_, v1::FoldReport::READY);
    ASSERT_TRUE(Has(3, Kind::kFoldCommit));
    Reduce(0, 3, /*root_here=*/false);
    h_.Clear();
  }
  // The same with small sources: the root's order says that the result is committed.
  void CommitBeforehand() {
    AddNodes(4);
    for (int i = 0; i < 3; ++i) Put(i, i, 1024);
    Reduce(3, 3);
    root_ = *FoldAt(3);
    ASSERT_TRUE(root_.committed());
    result_ = h_.NewGeneration(nodes_[3]);
    Reduce(0, 3, /*root_here=*/false);
    h_.Clear();
  }
  // The copy as the root's node registers it in a new session.
  void RegisterResult(bool complete, bool adopted = true,
                      absl::Duration ttl = absl::InfiniteDuration()) {
    v1::NodeMessage message;
    v1::RegisterCopy& copy = *message.mutable_register_copy();
    copy.set_object_id(Bytes(kTarget));
    ToProto(result_, copy.mutable_generation());
    *copy.mutable_info() = ResultOf(root_);
    SetTtl(ttl, copy.mutable_info());
    copy.set_primary(true);
    copy.set_adopted(adopted);
    copy.set_complete(complete);
    copy.set_writing(!complete);
    if (!complete) copy.add_watermarks(kSize / 2);
    Send(3, message);
  }
  void RegisterRoot(bool ready) {
    v1::NodeMessage message = Registered(root_);
    ToProto(result_, message.mutable_register_fold()->mutable_generation());
    message.mutable_register_fold()->set_ready(ready);
    Send(3, message);
  }
  void ComeBackWithTheResult(bool adopted = true) {
    h_.NewSession(nodes_[3], /*had_session=*/true);
    RegisterResult(/*complete=*/true, adopted);
    RegisterRoot(/*ready=*/true);
    h_.RegisterEnd(nodes_[3]);
  }
  uint64_t Complete() { return h_.Describe(kTarget).summary().complete_copies(); }

  v1::Fold root_;
  Generation result_;
};

TEST_F(CommitTest, AFencedRootReturnsWithTheResultThatItsClientHasRead) {
  Commit();
  h_.Want(nodes_[1], kTarget);
  h_.Down(nodes_[3]);
  EXPECT_EQ(h_.LastGone(nodes_[1]), std::nullopt);
  h_.Advance(absl::Milliseconds(1900));
  EXPECT_EQ(RootAt(), -1) << "another result would contradict it";
  ComeBackWithTheResult();
  EXPECT_EQ(RootAt(), -1);
  EXPECT_EQ(Code(0), 0);
  EXPECT_EQ(Complete(), 1u);
  EXPECT_EQ(h_.LastAssign(nodes_[1], kTarget)->generation, result_);
}

TEST_F(CommitTest, AFencedRootContinuesItsUnsealedResult) {
  Commit();
  h_.Down(nodes_[3]);
  h_.NewSession(nodes_[3], /*had_session=*/true);
  RegisterResult(/*complete=*/false);
  RegisterRoot(/*ready=*/true);
  h_.RegisterEnd(nodes_[3]);
  EXPECT_FALSE(Has(3, Kind::kFoldDrop));
  ASSERT_TRUE(Has(3, Kind::kFoldCommit));
  EXPECT_EQ(FromProto(h_.Last(nodes_[3], Kind::kFoldCommit)->fold_commit().version()),
            FromProto(root_.version()));
  h_.Seal(nodes_[3], kTarget, result_);
  EXPECT_EQ(Code(0), 0);
}

// Nodes give results no time to live, but a shard must survive one that a message has.
TEST_F(CommitTest, TheTimeToLiveOfAResultThatIsAwaitedEndsItsReduction) {
  Commit();
  h_.Down(nodes_[3]);
  h_.NewSession(nodes_[3], /*had_session=*/true);
  RegisterResult(/*complete=*/false, /*adopted=*/true, absl::Seconds(1));
  RegisterRoot(/*ready=*/true);
  h_.RegisterEnd(nodes_[3]);
  h_.Down(nodes_[3]);
  h_.Advance(absl::Seconds(1));
  EXPECT_EQ(Code(0), static_cast<int>(absl::StatusCode::kNotFound));
  EXPECT_EQ(Complete(), 0u);
}

TEST_F(CommitTest, ARootThatContinuesAndIsLostAgainIsAwaitedAgain) {
  Commit();
  h_.Down(nodes_[3]);
  h_.NewSession(nodes_[3], /*had_session=*/true);
  RegisterResult(/*complete=*/false);
  RegisterRoot(/*ready=*/true);
  h_.RegisterEnd(nodes_[3]);
  h_.Clear();
  h_.Down(nodes_[3]);
  h_.Advance(absl::Seconds(1));
  EXPECT_EQ(RootAt(), -1);
  h_.Advance(absl::Seconds(1));
  EXPECT_GE(RootAt(), 0);
}

TEST_F(CommitTest, ALeaseLaterAnotherResultIsComputedAndTheFirstIsTooLate) {
  Commit();
  h_.Down(nodes_[3]);
  h_.Advance(absl::Milliseconds(1999));
  EXPECT_EQ(RootAt(), -1);
  h_.Advance(absl::Milliseconds(1));
  const int again = RootAt();
  ASSERT_GE(again, 0);
  const v1::Fold fold = *FoldAt(again);
  const Generation g = Announce(again, fold);
  Report(again, fold, v1::FoldReport::READY);
  h_.Seal(nodes_[again], kTarget, g);
  EXPECT_EQ(Code(0), 0);
  ComeBackWithTheResult();
  EXPECT_EQ(h_.LastVerdict(nodes_[3]), v1::Verdict::SUPERSEDED);
}

TEST_F(CommitTest, AnotherLifeOfTheNodeDoesNotHaveIt) {
  Commit();
  h_.Down(nodes_[3]);
  ASSERT_EQ(RootAt(), -1);
  v1::NodeInfo info = h_.Info(nodes_[3]);
  info.mutable_key()->set_incarnation(nodes_[3].incarnation + 1);
  h_.core().NodeUp(info, h_.now());
  h_.Advance(absl::ZeroDuration());
  EXPECT_GE(RootAt(), 0);
}

TEST_F(CommitTest, AfterAPauseOfTheShardTheWaitStartsAgain) {
  Commit();
  h_.Down(nodes_[3]);
  h_.Advance(absl::Seconds(1));
  h_.core().NotePause(h_.now());
  h_.Advance(absl::Milliseconds(1500));
  EXPECT_EQ(RootAt(), -1);
  h_.Advance(absl::Milliseconds(500));
  EXPECT_GE(RootAt(), 0);
}

TEST_F(CommitTest, ANodeThatRegistersWhenTheLeaseEndsIsAwaitedToTheEnd) {
  Commit();
  h_.Down(nodes_[3]);
  h_.NewSession(nodes_[3], /*had_session=*/true);
  h_.Advance(absl::Seconds(3));
  EXPECT_EQ(RootAt(), -1);
  RegisterResult(/*complete=*/true);
  h_.RegisterEnd(nodes_[3]);
  EXPECT_EQ(Code(0), 0);
}

TEST_F(CommitTest, ADeleteMeanwhileRefusesTheReturningResult) {
  Commit();
  h_.Down(nodes_[3]);
  h_.Delete(nodes_[0], kTarget);
  EXPECT_EQ(Code(0), Number(absl::StatusCode::kNotFound));
  ComeBackWithTheResult();
  EXPECT_EQ(h_.LastVerdict(nodes_[3]), v1::Verdict::DELETED);
  EXPECT_EQ(Complete(), 0u);
}

TEST_F(CommitTest, ATombstoneOfTheResultEndsTheWait) {
  Commit();
  h_.Down(nodes_[3]);
  h_.RegisterTombstone(nodes_[1], kTarget, result_);
  EXPECT_GE(RootAt(), 0);
}

TEST_F(CommitTest, APutMeanwhileStandsByAndDoesNotComeBeforeWhatIsComputedAnew) {
  Commit();
  h_.Down(nodes_[3]);
  h_.Create(nodes_[2], kTarget, {.size = kSize, .complete = true});
  EXPECT_EQ(h_.LastVerdict(nodes_[2]), v1::Verdict::STANDBY);
  ComeBackWithTheResult();
  EXPECT_EQ(Code(0), 0);
  EXPECT_EQ(h_.LastVerdict(nodes_[2]), v1::Verdict::SUPERSEDED);
}

// ---- committed beforehand

TEST_F(CommitTest, ASmallResultOfAFencedRootReturnsWithTheRoot) {
  CommitBeforehand();
  h_.Down(nodes_[3]);
  h_.Advance(absl::Milliseconds(1900));
  EXPECT_EQ(RootAt(), -1);
  ComeBackWithTheResult(/*adopted=*/false);
  EXPECT_EQ(RootAt(), -1);
  EXPECT_EQ(Code(0), 0);
  EXPECT_EQ(Complete(), 1u);
}

TEST_F(CommitTest, ASmallResultIsFoldedElsewhereWhenItsNodeIsBackWithoutIt) {
  CommitBeforehand();
  h_.Down(nodes_[3]);
  h_.NewSession(nodes_[3], /*had_session=*/true);
  EXPECT_EQ(RootAt(), -1);
  h_.RegisterEnd(nodes_[3]);
  EXPECT_GE(RootAt(), 0);
}

TEST_F(CommitTest, ASmallResultIsFoldedOnWhereItsNodeStillWaitsForMemory) {
  CommitBeforehand();
  h_.Down(nodes_[3]);
  h_.NewSession(nodes_[3], /*had_session=*/true);
  Send(3, Registered(root_));
  h_.RegisterEnd(nodes_[3]);
  EXPECT_FALSE(Has(3, Kind::kFoldDrop));
  ASSERT_EQ(RootAt(), 3);
  EXPECT_EQ(FromProto(FoldAt(3)->version()), FromProto(root_.version()));
  EXPECT_TRUE(FoldAt(3)->committed());
  Announce(3, root_, /*complete=*/true, std::string(1024, 'r'));
  EXPECT_EQ(Code(0), 0);
}

TEST_F(CommitTest, ASmallResultIsFoldedElsewhereALeaseAfterItsNodeDied) {
  CommitBeforehand();
  h_.Down(nodes_[3]);
  h_.Advance(absl::Milliseconds(1999));
  EXPECT_EQ(RootAt(), -1);
  h_.Advance(absl::Milliseconds(1));
  const int again = RootAt();
  ASSERT_GE(again, 0);
  EXPECT_NE(again, 3);
  Announce(again, *FoldAt(again), /*complete=*/true, std::string(1024, 'r'));
  EXPECT_EQ(Code(0), 0);
}

// While a shard learns, a complete result does not end its reduction. The source is deleted
// meanwhile: an order to fold it again would fail.
TEST_F(CommitTest, ASmallResultIsNotFoldedAgainIfItsNodeRegistersWhileTheShardLearns) {
  h_.RestartShard();
  CommitBeforehand();
  result_ = Announce(3, root_, /*complete=*/true, std::string(1024, 'r'));
  h_.Delete(nodes_[0], Source(0));
  h_.Clear();
  ComeBackWithTheResult(/*adopted=*/false);
  EXPECT_FALSE(Has(3, Kind::kFold));
  EXPECT_TRUE(h_.Describe(kTarget).reduction().committed());
  h_.Advance(absl::Seconds(3));
  EXPECT_EQ(Code(0), 0);
  EXPECT_EQ(Complete(), 1u);
}

// The same, but the announcement of the result was lost with the session.
TEST_F(CommitTest, ASmallResultThatTheShardHasNotHeardOfIsNotFoldedAgainWhileItLearns) {
  h_.RestartShard();
  CommitBeforehand();
  h_.Delete(nodes_[0], Source(0));
  h_.Clear();
  ComeBackWithTheResult(/*adopted=*/false);
  EXPECT_FALSE(Has(3, Kind::kFold));
  h_.Advance(absl::Seconds(3));
  EXPECT_EQ(Code(0), 0);
  EXPECT_EQ(Complete(), 1u);
}

TEST_F(CommitTest, ASmallResultThatWasDeletedMeanwhileDoesNotComeBack) {
  CommitBeforehand();
  h_.Down(nodes_[3]);
  h_.Delete(nodes_[0], kTarget);
  ComeBackWithTheResult(/*adopted=*/false);
  EXPECT_EQ(h_.LastGone(nodes_[3]), v1::Gone::DELETED);
  EXPECT_EQ(Complete(), 0u);
}

}  // namespace
}  // namespace phalanx::directory
