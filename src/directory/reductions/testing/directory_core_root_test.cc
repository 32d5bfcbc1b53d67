// A reduction's result when its root dies or is replaced: the shard never contradicts a result that
// a node can have read.
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "src/directory/core/directory_core.h"
#include "src/directory/core/validate.h"
#include "src/directory/reductions/testing/directory_core_reduce_harness.h"
#include "src/directory/testing/directory_core_harness.h"

namespace phalanx::directory {
namespace {

using testing::Bytes;
using testing::kTarget;

class RootTest : public testing::ReduceTest {
 protected:
  // Sources on nodes 0 to 2, the root on node 3, whose result node 4 receives; committed.
  void Commit() {
    AddNodes(5);
    for (int i = 0; i < 3; ++i) Put(i, i);
    Reduce(3, 3);
    root_ = *FoldAt(3);
    result_ = Announce(3, root_);
    h_.Want(nodes_[4], kTarget);
    ASSERT_EQ(h_.SenderOf(nodes_[4], kTarget), nodes_[3]);
    Report(3, root_, v1::FoldReport::READY);
    ASSERT_TRUE(Has(3, Kind::kFoldCommit));
    Reduce(0, 3, /*root_here=*/false);
    h_.Clear();
  }
  v1::Fold root_;
  Generation result_;
};

TEST_F(RootTest, ACommittedResultIsAwaitedWhileANodeCanHaveAllOfIt) {
  Commit();
  h_.Down(nodes_[3]);
  h_.Advance(absl::Milliseconds(100));
  EXPECT_EQ(RootAt(), -1) << "nothing else is computed meanwhile";
  EXPECT_EQ(h_.LastGone(nodes_[4]), std::nullopt);
  h_.Finish(nodes_[4], kTarget);
  EXPECT_EQ(Code(0), 0);
  EXPECT_EQ(h_.LastGone(nodes_[4]), std::nullopt) << "what it has is the result";
  EXPECT_EQ(h_.Describe(kTarget).summary().complete_copies(), 1u);
}

TEST_F(RootTest, ACommittedResultWithoutACopyIsComputedAgainAfterALease) {
  Commit();
  h_.Down(nodes_[3]);
  h_.Advance(absl::Seconds(2));
  EXPECT_EQ(h_.LastGone(nodes_[4]), v1::Gone::VOID);
  const int again = RootAt();
  ASSERT_GE(again, 0);
  const v1::Fold fold = *FoldAt(again);
  const Generation g = Announce(again, fold);
  EXPECT_EQ(h_.LastVerdict(nodes_[again]), v1::Verdict::ADOPTED);
  Report(again, fold, v1::FoldReport::READY);
  EXPECT_TRUE(Has(again, Kind::kFoldCommit));
  h_.Seal(nodes_[again], kTarget, g);
  EXPECT_EQ(Code(0), 0);
}

TEST_F(RootTest, ACommittedResultIsComputedAgainWhenItsReceiversAndItsNodeLackIt) {
  Commit();
  h_.Down(nodes_[3]);
  h_.Fail(nodes_[4], kTarget);
  EXPECT_EQ(RootAt(), -1) << "its node may have sealed it";
  h_.NewSession(nodes_[3], /*had_session=*/true);
  EXPECT_EQ(RootAt(), -1);
  h_.RegisterEnd(nodes_[3]);
  EXPECT_GE(RootAt(), 0);
}

TEST_F(RootTest, ARootThatReturnsWithoutTheResultIsReplaced) {
  Commit();
  h_.Down(nodes_[3]);
  h_.NewSession(nodes_[3], /*had_session=*/true);
  h_.RegisterEnd(nodes_[3]);
  h_.Advance(absl::Seconds(2));
  EXPECT_GE(RootAt(), 0);
}

TEST_F(RootTest, AnUncommittedResultIsReplacedAtOnceAndItsCreatorNotifiedOnce) {
  AddNodes(5);
  for (int i = 0; i < 3; ++i) Put(i, i);
  Reduce(3, 3);
  Announce(3, *FoldAt(3));
  h_.Want(nodes_[4], kTarget);
  h_.Down(nodes_[0]);
  h_.Clear();
  Put(4, 0);
  ASSERT_TRUE(FoldAt(3).has_value());
  const v1::Fold anew = *FoldAt(3);
  h_.Clear();
  const Generation g = Announce(3, anew);
  EXPECT_EQ(h_.Count(nodes_[3], Kind::kGone), 0);
  EXPECT_EQ(h_.Count(nodes_[3], Kind::kVerdict), 2) << "superseded and adopted";
  EXPECT_EQ(h_.LastVerdict(nodes_[3]), v1::Verdict::ADOPTED);
  EXPECT_EQ(h_.LastGone(nodes_[4]), v1::Gone::VOID);
  EXPECT_EQ(h_.LastAssign(nodes_[4], kTarget)->generation, g);
}

TEST_F(RootTest, AResultOfAnEarlierLifeOfTheShardIsWaitedForWhileANewRootStandsBy) {
  Commit();
  h_.RestartShard();
  h_.Advance(absl::Seconds(1));
  // The receiver pulls from the root, which does not reconnect.
  h_.NewSession(nodes_[4], /*had_session=*/true);
  v1::NodeMessage part;
  v1::RegisterCopy& copy = *part.mutable_register_copy();
  copy.set_object_id(Bytes(kTarget));
  ToProto(result_, copy.mutable_generation());
  *copy.mutable_info() = ResultOf(root_);
  copy.set_adopted(true);
  copy.add_watermarks(kSize / 2);
  ToProto(nodes_[3], copy.mutable_sender());
  Send(4, part);
  h_.RegisterWant(nodes_[4], kTarget);
  h_.RegisterEnd(nodes_[4]);
  for (int i = 0; i < 3; ++i) {
    h_.NewSession(nodes_[i], /*had_session=*/true);
    h_.RegisterCopy(nodes_[i], Source(i), Generation{nodes_[i], 77}, {.size = kSize});
    h_.RegisterEnd(nodes_[i]);
  }
  h_.Clear();
  Reduce(0, 3);
  h_.Advance(absl::Seconds(1));
  ASSERT_EQ(RootAt(), 0);
  const v1::Fold root = *FoldAt(0);
  h_.Clear();
  Announce(0, root);
  EXPECT_EQ(h_.LastVerdict(nodes_[0]), v1::Verdict::STANDBY);
  Report(0, root, v1::FoldReport::READY);
  EXPECT_FALSE(Has(0, Kind::kFoldCommit));
  EXPECT_EQ(h_.LastGone(nodes_[4]), std::nullopt);
  h_.Advance(absl::Seconds(2));
  EXPECT_EQ(h_.LastGone(nodes_[4]), v1::Gone::VOID);
  EXPECT_EQ(h_.LastVerdict(nodes_[0]), v1::Verdict::ADOPTED);
  EXPECT_TRUE(Has(0, Kind::kFoldCommit));
}

}  // namespace
}  // namespace phalanx::directory
