// Reductions with a result for all nodes: the ring, which the shard tries first, and the effects of
// a broken ring, as nodes and callers observe them.
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "src/directory/core/validate.h"
#include "src/directory/reductions/testing/directory_core_reduce_harness.h"
#include "src/directory/testing/directory_core_harness.h"

namespace phalanx::directory {
namespace {

using testing::Bytes;
using testing::kTarget;
using testing::ReduceTest;

class RingTest : public ReduceTest {
 protected:
  void AllReduce(int node, int sources) {
    v1::NodeMessage message = Request(sources);
    message.mutable_reduce_request()->mutable_reduction()->set_everybody(true);
    Send(node, message);
  }
  // `members` nodes have one source each, and all of them have requested the result.
  void BeginRing(int members) {
    AddNodes(members);
    for (int i = 0; i < members; ++i) Put(i, i);
    for (int i = 0; i < members; ++i) AllReduce(i, members);
  }
  bool InRing(int node) { return FoldAt(node).has_value() && FoldAt(node)->has_ring(); }
  Generation RingGeneration() { return FromProto(FoldAt(0)->ring().generation()); }
  void AnnounceAs(int node, const v1::Fold& fold) {
    v1::NodeMessage message;
    v1::AnnounceCreate& create = *message.mutable_announce_create();
    create.set_object_id(Bytes(kTarget));
    *create.mutable_generation() = fold.ring().generation();
    *create.mutable_info() = ResultOf(fold);
    *create.mutable_version() = fold.version();
    Send(node, message);
  }
  void AnnounceAll() {
    for (int i = 0; i < static_cast<int>(nodes_.size()); ++i) AnnounceAs(i, *FoldAt(i));
  }
  void Fail(int node, absl::StatusCode code) {
    v1::NodeMessage message;
    message.mutable_fold_report()->set_object_id(Bytes(kTarget));
    *message.mutable_fold_report()->mutable_version() = FoldAt(node)->version();
    message.mutable_fold_report()->set_kind(v1::FoldReport::FAILED);
    message.mutable_fold_report()->set_code(static_cast<int>(code));
    message.mutable_fold_report()->set_message("no answer");
    Send(node, message);
  }
  void ReadyAll() {
    for (int i = 0; i < static_cast<int>(nodes_.size()); ++i) {
      Report(i, *FoldAt(i), v1::FoldReport::READY);
    }
  }
  // The node's last order is one of the tree.
  bool InTree(int node) { return FoldAt(node).has_value() && !FoldAt(node)->has_ring(); }
};

TEST_F(RingTest, NodesThatAllWantTheResultAreOrderedIntoARing) {
  BeginRing(4);
  for (int i = 0; i < 4; ++i) {
    ASSERT_TRUE(InRing(i)) << i;
    const v1::Fold fold = *FoldAt(i);
    EXPECT_EQ(fold.slot(), static_cast<uint32_t>(i));
    EXPECT_EQ(fold.slots(), 4u);
    EXPECT_EQ(FromProto(fold.ring().before()), nodes_[(i + 3) % 4]);
    EXPECT_EQ(fold.ring().before_address(), h_.Info(nodes_[(i + 3) % 4]).address());
    EXPECT_EQ(FromProto(fold.ring().generation()), RingGeneration());
    ASSERT_EQ(fold.inputs_size(), 1);
    EXPECT_EQ(fold.inputs(0).source_id(), Bytes(Source(i)));
    EXPECT_EQ(fold.reduced_from().size(), 4 * ObjectId::kSize);
  }
}

TEST_F(RingTest, TheFirstWholeCopyEndsItAndTheOthersGoOn) {
  BeginRing(3);
  AnnounceAll();
  for (int i = 0; i < 3; ++i) EXPECT_EQ(h_.LastVerdict(nodes_[i]), v1::Verdict::ADOPTED);
  Report(0, *FoldAt(0), v1::FoldReport::READY);
  Report(1, *FoldAt(1), v1::FoldReport::READY);
  EXPECT_FALSE(Has(0, Kind::kFoldCommit)) << "one is missing";
  Report(2, *FoldAt(2), v1::FoldReport::READY);
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(Has(i, Kind::kFoldCommit)) << i;
  EXPECT_FALSE(Reply(0).has_value());
  h_.Seal(nodes_[1], kTarget, RingGeneration());
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(Code(i), 0) << i;
    EXPECT_FALSE(Has(i, Kind::kFoldDrop)) << i;
  }
  h_.Seal(nodes_[0], kTarget, RingGeneration());
  h_.Seal(nodes_[2], kTarget, RingGeneration());
  EXPECT_EQ(h_.Describe(kTarget).summary().complete_copies(), 3u);
  h_.Clear();
  AllReduce(1, 3);
  EXPECT_EQ(Code(1), 0) << "the result is there";
}

TEST_F(RingTest, MembersAreSentNothingOfWhatTheyMakeAndOthersAre) {
  BeginRing(3);
  AddNodes(1);
  h_.Want(nodes_[2], kTarget);
  AnnounceAs(0, *FoldAt(0));
  EXPECT_FALSE(h_.LastAssign(nodes_[2], kTarget).has_value());
  h_.Want(nodes_[3], kTarget);
  EXPECT_TRUE(h_.LastAssign(nodes_[3], kTarget).has_value());
}

TEST_F(RingTest, AReductionForOneRequesterIsNoRing) {
  AddNodes(4);
  for (int i = 0; i < 4; ++i) Put(i, i);
  Reduce(0, 4, /*root_here=*/false);
  EXPECT_FALSE(InRing(0)) << "only who asks wants it";
  EXPECT_TRUE(FoldAt(0).has_value());
}

// ---- in the order of a ring, which one requester can ask for

constexpr uint32_t kRingOrder = 2;

v1::NodeMessage InRingOrder(v1::NodeMessage request) {
  request.mutable_reduce_request()->mutable_reduction()->set_order(kRingOrder);
  return request;
}

TEST_F(RingTest, ARingOfTheListIsMadeForOneRequester) {
  AddNodes(4);
  // In another order than that of the nodes; small, and the last one comes late.
  Put(2, 0, 100'000);
  Put(0, 1, 100'000);
  Send(1, InRingOrder(Request(3)));
  h_.Advance(absl::Seconds(20));
  EXPECT_FALSE(FoldAt(0).has_value()) << "no tree does without it";
  Put(3, 2, 100'000);
  for (const auto& [node, slot] : {std::pair{2, 0u}, std::pair{0, 1u}, std::pair{3, 2u}}) {
    ASSERT_TRUE(InRing(node)) << node;
    EXPECT_EQ(FoldAt(node)->slot(), slot);
    EXPECT_EQ(FoldAt(node)->slots(), 3u);
  }
  EXPECT_FALSE(FoldAt(1).has_value());
}

// A source that all have is folded where no other one is.
TEST_F(RingTest, EachSourceHasANodeOfItsOwn) {
  AddNodes(3);
  Put(1, 0);
  for (const int node : {0, 2}) {
    h_.Want(nodes_[node], Source(0));
    h_.Report(nodes_[node], h_.ReportOf(nodes_[node], Source(0), /*complete=*/true));
  }
  Put(0, 1);
  Put(2, 2);
  Send(1, InRingOrder(Request(3)));
  ASSERT_TRUE(InRing(1));
  EXPECT_EQ(FoldAt(1)->slot(), 0u);
  EXPECT_EQ(FoldAt(1)->inputs(0).source_id(), Bytes(Source(0)));
  EXPECT_EQ(FromProto(FoldAt(1)->ring().generation()).creator, nodes_[1]);
}

TEST_F(RingTest, WhereNoneIsMadeTheReductionEnds) {
  AddNodes(3);
  Put(0, 0);
  Put(1, 1);
  Put(1, 2);
  Send(0, InRingOrder(Request(3)));
  EXPECT_EQ(Code(0), Number(absl::StatusCode::kFailedPrecondition)) << "two are at one node";
  EXPECT_FALSE(FoldAt(0).has_value());
}

TEST_F(RingTest, OneThatBreaksEndsWithoutATree) {
  AddNodes(3);
  for (int i = 0; i < 3; ++i) Put(i, i);
  Send(0, InRingOrder(Request(3)));
  AnnounceAll();
  Report(1, *FoldAt(1), v1::FoldReport::NO_MEMORY);
  EXPECT_EQ(Code(0), Number(absl::StatusCode::kFailedPrecondition));
  for (int i = 0; i < 3; ++i) {
    EXPECT_TRUE(Has(i, Kind::kFoldDrop)) << i;
    EXPECT_FALSE(InTree(i)) << i;
  }
}

// A caller has reported that the target is never there, as a server of parameters does, while a
// node that keeps the description was out of contact.
TEST_F(RingTest, ANodeThatComesBackBeginsNoneThatWasGivenUp) {
  AddNodes(4);
  for (int i = 0; i < 3; ++i) Put(i, i);
  v1::NodeMessage fail;
  fail.mutable_fail_request()->set_request_id(77);
  fail.mutable_fail_request()->set_object_id(Bytes(kTarget));
  fail.mutable_fail_request()->set_code(Number(absl::StatusCode::kNotFound));
  fail.mutable_fail_request()->set_message("taken back");
  Send(0, fail);
  v1::NodeMessage kept = InRingOrder(Request(3));
  kept.mutable_reduce_request()->set_request_id(0);
  kept.mutable_reduce_request()->set_again(true);
  Send(1, kept);
  EXPECT_FALSE(FoldAt(0).has_value());
  h_.Want(nodes_[3], kTarget);
  EXPECT_EQ(h_.LastGone(nodes_[3]), v1::Gone::REFUSED);
}

TEST_F(RingTest, SmallObjectsMakeNone) {
  AddNodes(4);
  for (int i = 0; i < 4; ++i) Put(i, i, 100'000);
  AllReduce(0, 4);
  EXPECT_TRUE(InTree(0));
}

TEST_F(RingTest, TwoNodesMakeNone) {
  AddNodes(2);
  Put(0, 0);
  Put(0, 1);
  Put(1, 2);
  AllReduce(0, 3);
  EXPECT_TRUE(InTree(0));
}

TEST_F(RingTest, ZonesMakeNone) {
  for (int i = 0; i < 4; ++i) {
    nodes_.push_back(h_.Up(absl::StrCat("n", i), {{"zone", i < 2 ? "a" : "b"}}));
    Put(i, i);
  }
  AllReduce(0, 4);
  EXPECT_TRUE(InTree(0));
}

TEST_F(RingTest, TheLastSourceIsWaitedForAWhile) {
  AddNodes(3);
  Put(0, 0);
  Put(1, 1);
  AllReduce(0, 3);
  EXPECT_FALSE(FoldAt(0).has_value());
  h_.Advance(absl::Milliseconds(2));
  Put(2, 2);
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(InRing(i)) << i;
}

TEST_F(RingTest, ATreeBeginsWithoutTheSourceThatDoesNotCome) {
  AddNodes(3);
  AllReduce(0, 3);
  h_.Advance(absl::Seconds(60));
  EXPECT_FALSE(FoldAt(0).has_value()) << "there is nothing yet";
  Put(0, 0);
  Put(1, 1);
  EXPECT_FALSE(FoldAt(0).has_value());
  h_.Advance(absl::Seconds(1));
  EXPECT_TRUE(InTree(0));
  Put(2, 2);
  EXPECT_TRUE(InTree(2));
}

TEST_F(RingTest, AFailedSourceEndsTheReductionAtOnce) {
  AddNodes(3);
  Put(0, 0);
  AllReduce(0, 3);
  v1::NodeMessage fail;
  fail.mutable_fail_request()->set_request_id(77);
  fail.mutable_fail_request()->set_object_id(Bytes(Source(2)));
  fail.mutable_fail_request()->set_code(Number(absl::StatusCode::kInternal));
  fail.mutable_fail_request()->set_message("out of cheese");
  Send(1, fail);
  EXPECT_EQ(Code(0), Number(absl::StatusCode::kInternal));
}

TEST_F(RingTest, SourcesOfTwoSizesEndItWithTheirNames) {
  AddNodes(3);
  Put(0, 0);
  Put(1, 1);
  Put(2, 2, kSize / 2);
  AllReduce(0, 3);
  EXPECT_EQ(Code(0), Number(absl::StatusCode::kInvalidArgument));
}

TEST_F(RingTest, AMemberThatGivesUpLeavesItToATree) {
  BeginRing(3);
  AnnounceAll();
  const v1::Fold ring = *FoldAt(0);
  Report(1, *FoldAt(1), v1::FoldReport::NO_MEMORY);
  for (int i = 0; i < 3; ++i) {
    EXPECT_TRUE(Has(i, Kind::kFoldDrop)) << i;
    EXPECT_TRUE(InTree(i)) << i;
  }
  // A node that has not read the drop yet announces its copy: the verdict is SUPERSEDED.
  AnnounceAs(2, ring);
  EXPECT_EQ(h_.LastVerdict(nodes_[2]), v1::Verdict::SUPERSEDED);
  int tree_root = -1;
  for (int i = 0; i < 3; ++i) {
    if (FoldAt(i)->root()) tree_root = i;
  }
  ASSERT_GE(tree_root, 0);
  const v1::Fold fold = *FoldAt(tree_root);
  const Generation g = Announce(tree_root, fold);
  EXPECT_EQ(h_.LastVerdict(nodes_[tree_root]), v1::Verdict::ADOPTED);
  Report(tree_root, fold, v1::FoldReport::READY);
  h_.Seal(nodes_[tree_root], kTarget, g);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(Code(i), 0) << i;
}

TEST_F(RingTest, AReceiverOfABrokenRingsResultIsNotifiedThatItIsVoid) {
  BeginRing(3);
  AddNodes(1);
  for (int i = 0; i < 3; ++i) AnnounceAs(i, *FoldAt(i));
  h_.Want(nodes_[3], kTarget);
  ASSERT_TRUE(h_.LastAssign(nodes_[3], kTarget).has_value());
  Report(0, *FoldAt(0), v1::FoldReport::DROPPED);
  EXPECT_EQ(h_.LastGone(nodes_[3]), v1::Gone::VOID);
}

TEST_F(RingTest, APullThatFailsBreaksItUnlessItCameTooEarly) {
  BeginRing(3);
  Fail(1, absl::StatusCode::kNotFound);
  EXPECT_TRUE(InRing(0)) << "the one before had not begun";
  EXPECT_FALSE(Has(0, Kind::kFoldDrop));
  Fail(1, absl::StatusCode::kUnavailable);
  EXPECT_TRUE(InTree(0));
}

TEST_F(RingTest, AMemberThatDiesLeavesItToATreeAndItsSourceToWhoPutsItAgain) {
  BeginRing(3);
  AnnounceAll();
  AddNodes(1);
  h_.Down(nodes_[1]);
  for (const int i : {0, 2}) EXPECT_TRUE(Has(i, Kind::kFoldDrop)) << i;
  Put(3, 1);
  EXPECT_TRUE(InTree(3));
}

TEST_F(RingTest, AMemberWithANewSessionBreaksIt) {
  BeginRing(3);
  AnnounceAll();
  h_.NewSession(nodes_[1]);
  for (const int i : {0, 2}) EXPECT_TRUE(Has(i, Kind::kFoldDrop)) << i;
}

TEST_F(RingTest, ACommittedResultWithoutACopyIsComputedAgain) {
  BeginRing(3);
  AnnounceAll();
  const Generation g = RingGeneration();
  ReadyAll();
  h_.Clear();
  h_.Down(nodes_[1]);
  for (const int i : {0, 2}) EXPECT_TRUE(Has(i, Kind::kFoldDrop)) << i;
  EXPECT_FALSE(FoldAt(0).has_value()) << "one of them may have it";
  h_.Withdraw(nodes_[0], kTarget, g);
  h_.Withdraw(nodes_[2], kTarget, g);
  h_.Advance(absl::Seconds(3));
  AddNodes(1);
  Put(3, 1);
  EXPECT_TRUE(InTree(3));
}

TEST_F(RingTest, ACommittedOneThatAMemberHasIsTheResultThoughAnotherDied) {
  BeginRing(3);
  AnnounceAll();
  const Generation g = RingGeneration();
  ReadyAll();
  h_.Down(nodes_[1]);
  h_.Seal(nodes_[2], kTarget, g);
  EXPECT_EQ(Code(0), 0);
  EXPECT_EQ(Code(2), 0);
  h_.Withdraw(nodes_[0], kTarget, g);
  h_.Want(nodes_[0], kTarget);
  EXPECT_EQ(h_.SenderOf(nodes_[0], kTarget), nodes_[2]);
}

TEST_F(RingTest, OneThatIsGivenUpAtItsDeadlineLeavesNoTraceOfWhoHadNotBegun) {
  AddNodes(3);
  for (int i = 0; i < 3; ++i) Put(i, i);
  v1::NodeMessage message = Request(3);
  message.mutable_reduce_request()->mutable_reduction()->set_everybody(true);
  message.mutable_reduce_request()->set_timeout_ms(500);
  Send(0, message);
  const Generation g = RingGeneration();
  AnnounceAs(0, *FoldAt(0));
  AnnounceAs(1, *FoldAt(1));
  h_.Advance(absl::Seconds(1));
  EXPECT_EQ(Code(0), Number(absl::StatusCode::kDeadlineExceeded));
  h_.Withdraw(nodes_[0], kTarget, g);
  h_.Withdraw(nodes_[1], kTarget, g);
  h_.Clear();
  // The next reduction does not wait for a writer that never existed.
  AllReduce(0, 3);
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(InRing(i)) << i;
}

TEST_F(RingTest, AnOlderGenerationThatComesBackIsNotCommittedOver) {
  AddNodes(4);
  for (int i = 1; i < 4; ++i) Put(i, i - 1);
  for (int i = 1; i < 4; ++i) AllReduce(i, 3);
  std::vector<v1::Fold> folds(1);
  for (int i = 1; i < 4; ++i) folds.push_back(*FoldAt(i));
  for (int i = 1; i < 4; ++i) AnnounceAs(i, folds[i]);
  // Smaller than the ring's result, adopted once, and still being written.
  h_.NewSession(nodes_[0], /*had_session=*/true);
  h_.RegisterCopy(nodes_[0], kTarget, Generation{nodes_[0], 1},
                  {.adopted = true, .complete = false, .size = kSize});
  h_.RegisterEnd(nodes_[0]);
  for (int i = 1; i < 4; ++i) Report(i, folds[i], v1::FoldReport::READY);
  for (int i = 1; i < 4; ++i) EXPECT_FALSE(Has(i, Kind::kFoldCommit)) << i;
}

TEST_F(RingTest, AfterTheCommitALostConnectionIsTriedAgain) {
  BeginRing(3);
  AnnounceAll();
  ReadyAll();
  Fail(1, absl::StatusCode::kUnavailable);
  EXPECT_FALSE(Has(1, Kind::kFoldDrop));
  for (int i = 0; i < 20; ++i) Fail(1, absl::StatusCode::kUnavailable);
  EXPECT_TRUE(Has(1, Kind::kFoldDrop)) << "not for ever";
}

TEST_F(RingTest, AMemberThatRegistersWhileItSealsIsHeardToTheEnd) {
  BeginRing(3);
  AnnounceAll();
  const Generation g = RingGeneration();
  ReadyAll();
  h_.NewSession(nodes_[1], /*had_session=*/true);
  v1::NodeMessage message;
  v1::RegisterCopy& copy = *message.mutable_register_copy();
  copy.set_object_id(Bytes(kTarget));
  ToProto(g, copy.mutable_generation());
  *copy.mutable_info() = ResultOf(*FoldAt(0));
  copy.set_adopted(true);
  copy.set_writing(true);
  for (int i = 0; i < 3; ++i) copy.add_watermarks(1 << 20);
  Send(1, message);
  h_.Withdraw(nodes_[0], kTarget, g);
  h_.Withdraw(nodes_[2], kTarget, g);
  h_.RegisterEnd(nodes_[1]);
  h_.Clear();
  h_.Seal(nodes_[1], kTarget, g);
  EXPECT_EQ(Code(0), 0) << "what it sealed is the result";
  EXPECT_FALSE(FoldAt(0).has_value());
}

TEST_F(RingTest, WhatAnEarlierLifeOfTheShardPlannedGoesOnThoughAPullFails) {
  AddNodes(3);
  for (int i = 0; i < 3; ++i) Put(i, i);
  Reduce(0, 3);
  const v1::Fold fold = *FoldAt(1);
  h_.RestartShard();
  h_.Clear();
  h_.NewSession(nodes_[1], /*had_session=*/true);
  Send(1, Registered(fold));
  h_.RegisterEnd(nodes_[1]);
  v1::NodeMessage failed;
  failed.mutable_fold_report()->set_object_id(Bytes(kTarget));
  *failed.mutable_fold_report()->mutable_version() = fold.version();
  failed.mutable_fold_report()->set_kind(v1::FoldReport::FAILED);
  failed.mutable_fold_report()->set_code(Number(absl::StatusCode::kUnavailable));
  Send(1, failed);
  EXPECT_FALSE(Has(1, Kind::kFoldDrop));
}

TEST_F(RingTest, ADeletedTargetDropsTheMembers) {
  BeginRing(3);
  AnnounceAll();
  h_.Delete(nodes_[0], kTarget);
  for (int i = 0; i < 3; ++i) {
    EXPECT_TRUE(Has(i, Kind::kFoldDrop)) << i;
    EXPECT_EQ(Code(i), Number(absl::StatusCode::kNotFound)) << i;
  }
}

TEST_F(RingTest, AMemberThatIsCutOffAfterTheEndIsToldToGetIt) {
  BeginRing(3);
  AnnounceAll();
  ReadyAll();
  const Generation g = RingGeneration();
  h_.Seal(nodes_[0], kTarget, g);
  Fail(2, absl::StatusCode::kUnavailable);
  EXPECT_TRUE(Has(2, Kind::kFoldDrop));
  h_.Withdraw(nodes_[2], kTarget, g);
  h_.Want(nodes_[2], kTarget);
  EXPECT_TRUE(h_.LastAssign(nodes_[2], kTarget).has_value());
}

TEST_F(RingTest, ADescriptionSaysThatItIsARing) {
  BeginRing(3);
  const v1::DescribeObjectResponse described = h_.Describe(kTarget);
  ASSERT_TRUE(described.has_reduction());
  EXPECT_TRUE(described.reduction().ring());
  EXPECT_EQ(described.reduction().slots_size(), 3);
}

}  // namespace
}  // namespace phalanx::directory
