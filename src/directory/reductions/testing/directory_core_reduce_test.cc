// Reductions as nodes and callers observe them: requests, orders and replies, and the effects of
// sources, nodes, sessions and the shard that fail or start.
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "src/common/elements.h"
#include "src/directory/core/directory_core.h"
#include "src/directory/core/validate.h"
#include "src/directory/reductions/testing/directory_core_reduce_harness.h"
#include "src/directory/testing/directory_core_harness.h"

namespace phalanx::directory {
namespace {

using testing::Bytes;
using testing::Creation;
using testing::Harness;
using ::testing::HasSubstr;
using testing::Id;
using testing::kTarget;
using testing::ReduceTest;

TEST_F(ReduceTest, ExistingSourcesAreFoldedAlongTheTreeUpToTheRequester) {
  AddNodes(3);
  for (int i = 0; i < 3; ++i) Put(i, i);
  Reduce(2, 3);
  ASSERT_EQ(RootAt(), 2);
  const v1::Fold root = *FoldAt(2);
  EXPECT_EQ(root.size_bytes(), kSize);
  EXPECT_EQ(root.reduced_from().size(), 3 * ObjectId::kSize);
  for (const int node : {0, 1}) {
    ASSERT_TRUE(FoldAt(node).has_value()) << node;
    EXPECT_FALSE(FoldAt(node)->root());
  }
  // Each input from another slot names that slot's node and version.
  for (const v1::Fold::Input& input : root.inputs()) {
    if (!input.has_sender()) continue;
    const int below = FromProto(input.sender()) == nodes_[0] ? 0 : 1;
    EXPECT_EQ(FromProto(input.sender()), nodes_[below]);
    EXPECT_EQ(FromProto(input.generation()), FromProto(FoldAt(below)->version()));
    EXPECT_EQ(input.sender_address(), h_.Info(nodes_[below]).address());
  }
}

TEST_F(ReduceTest, EndsForEveryRequesterWhenTheCommittedResultIsSealed) {
  AddNodes(3);
  for (int i = 0; i < 3; ++i) Put(i, i);
  Reduce(2, 3);
  Reduce(0, 3, /*root_here=*/false);
  const v1::Fold root = *FoldAt(2);
  const Generation g = Announce(2, root);
  EXPECT_EQ(h_.LastVerdict(nodes_[2]), v1::Verdict::ADOPTED);
  Report(2, root, v1::FoldReport::READY);
  ASSERT_TRUE(Has(2, Kind::kFoldCommit));
  EXPECT_FALSE(Reply(2).has_value());
  h_.Seal(nodes_[2], kTarget, g);
  EXPECT_EQ(Code(2), 0);
  EXPECT_EQ(Code(0), 0);
  for (const int node : {0, 1, 2}) EXPECT_TRUE(Has(node, Kind::kFoldDrop)) << node;
  // A second request gets its reply at once.
  h_.Clear();
  Reduce(1, 3);
  EXPECT_EQ(Code(1), 0);
}

TEST_F(ReduceTest, SourcesMayComeAfterIt) {
  AddNodes(3);
  Reduce(2, 3);
  EXPECT_EQ(RootAt(), -1);
  for (int i = 0; i < 3; ++i) Put(i, i);
  EXPECT_EQ(RootAt(), 2);
}

TEST_F(ReduceTest, TheTargetIsStreamedWhileItIsComputed) {
  AddNodes(4);
  for (int i = 0; i < 3; ++i) Put(i, i);
  h_.Want(nodes_[3], kTarget);
  Reduce(2, 3);
  Announce(2, *FoldAt(2));
  EXPECT_EQ(h_.SenderOf(nodes_[3], kTarget), nodes_[2]);
}

TEST_F(ReduceTest, SmallSourcesTravelWithTheOrderAndNeedNoCommit) {
  AddNodes(3);
  for (int i = 0; i < 3; ++i) Put(i, i, 1024);
  Reduce(2, 3);
  ASSERT_EQ(RootAt(), 2);
  const v1::Fold root = *FoldAt(2);
  EXPECT_TRUE(root.committed());
  ASSERT_EQ(root.inputs_size(), 3);
  int inline_inputs = 0;
  for (const v1::Fold::Input& input : root.inputs()) {
    if (!input.has_inline()) continue;
    ++inline_inputs;
    EXPECT_EQ(input.inline_bytes().size(), 1024);
  }
  EXPECT_GE(inline_inputs, 2);
  EXPECT_FALSE(FoldAt(0).has_value());
  Announce(2, root, /*complete=*/true);
  EXPECT_EQ(Code(2), 0);
}

TEST_F(ReduceTest, EveryWaitingNodeGetsASmallResultAsSoonAsItIsAnnounced) {
  AddNodes(4);
  for (int i = 0; i < 4; ++i) Put(i, i, 1024);
  for (int node = 0; node < 4; ++node) {
    h_.Want(nodes_[node], kTarget);
    Reduce(node, 4, /*root_here=*/false);
  }
  const int root = RootAt();
  ASSERT_GE(root, 0);
  Announce(root, *FoldAt(root), /*complete=*/true, std::string(1024, 'r'));
  for (int node = 0; node < 4; ++node) {
    EXPECT_EQ(Code(node), 0) << node;
    EXPECT_FALSE(Has(node, Kind::kAssign)) << node;
    if (node == root) continue;
    ASSERT_TRUE(Has(node, Kind::kDeliver)) << node;
    EXPECT_EQ(h_.Last(nodes_[node], Kind::kDeliver)->deliver().inline_bytes(),
              std::string(1024, 'r'));
  }
}

// Each hop of a chain adds the time of one forwarded block, not of a whole segment.
TEST_F(ReduceTest, AMiddleReductionOfManyIsAChain) {
  AddNodes(24);
  for (int i = 0; i < 24; ++i) Put(i, i, 1 << 20);
  Reduce(23, 24);
  EXPECT_EQ(FoldAt(23)->degree(), 1u);
}

TEST_F(ReduceTest, ASourceOfAnotherSizeEndsThisReductionAlone) {
  AddNodes(2);
  Put(0, 0);
  Put(1, 1, kSize + 4);
  Reduce(1, 2);
  EXPECT_EQ(Code(1), Number(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(Reply(1)->message(), HasSubstr(Source(1).hex()));
  v1::NodeMessage twice = Request(2);
  twice.mutable_reduce_request()->mutable_reduction()->add_source_ids(Bytes(Source(0)));
  Send(0, twice);
  EXPECT_EQ(Code(0), Number(absl::StatusCode::kInvalidArgument));
  v1::NodeMessage itself = Request(2);
  itself.mutable_reduce_request()->mutable_reduction()->add_source_ids(Bytes(kTarget));
  Send(0, itself);
  EXPECT_EQ(Code(0), Number(absl::StatusCode::kInvalidArgument));
  v1::NodeMessage op = Request(2);
  op.mutable_reduce_request()->mutable_reduction()->set_op(99);
  Send(0, op);
  EXPECT_EQ(Code(0), Number(absl::StatusCode::kInvalidArgument));
}

TEST_F(ReduceTest, AnotherReductionOrAnotherObjectUnderTheTargetIsAlreadyThere) {
  AddNodes(2);
  Reduce(0, 3);
  Reduce(1, 2);
  EXPECT_EQ(Code(1), Number(absl::StatusCode::kAlreadyExists));
  EXPECT_FALSE(Reply(0).has_value());
  h_.Delete(nodes_[1], kTarget);
  EXPECT_EQ(Code(0), Number(absl::StatusCode::kNotFound));

  h_.Create(nodes_[0], Source(7), {.complete = true});
  v1::NodeMessage message = Request(3);
  message.mutable_reduce_request()->set_object_id(Bytes(Source(7)));
  Send(1, message);
  EXPECT_EQ(Code(1), Number(absl::StatusCode::kAlreadyExists));
}

TEST_F(ReduceTest, EndsAtItsDeadlineAndNamesTheMissingSources) {
  AddNodes(2);
  Put(0, 0);
  v1::NodeMessage message = Request(3);
  message.mutable_reduce_request()->set_timeout_ms(500);
  Send(0, message);
  h_.Advance(absl::Milliseconds(499));
  EXPECT_FALSE(Reply(0).has_value());
  h_.Advance(absl::Milliseconds(1));
  EXPECT_EQ(Code(0), Number(absl::StatusCode::kDeadlineExceeded));
  EXPECT_THAT(Reply(0)->message(), HasSubstr(Source(1).hex()));
  EXPECT_THAT(Reply(0)->message(), HasSubstr(Source(2).hex()));
  EXPECT_EQ(h_.Describe(kTarget).reduction().needed(), 0);
}

TEST_F(ReduceTest, ContinuesWhenTheRequesterDies) {
  AddNodes(4);
  for (int i = 0; i < 3; ++i) Put(i, i);
  Reduce(3, 3);
  ASSERT_EQ(RootAt(), 3);
  h_.Clear();
  h_.Down(nodes_[3]);
  const int root = RootAt();
  ASSERT_GE(root, 0);
  const v1::Fold fold = *FoldAt(root);
  const Generation g = Announce(root, fold);
  Report(root, fold, v1::FoldReport::READY);
  EXPECT_TRUE(Has(root, Kind::kFoldCommit));
  h_.Seal(nodes_[root], kTarget, g);
  EXPECT_EQ(h_.Describe(kTarget).summary().complete_copies(), 1);
}

TEST_F(ReduceTest, ALostSourceIsReplacedAndTheOldResultIsNotCommitted) {
  AddNodes(4);
  for (int i = 0; i < 3; ++i) Put(i, i);
  Reduce(2, 3);
  const v1::Fold old_root = *FoldAt(2);
  Announce(2, old_root);
  h_.Clear();
  h_.Down(nodes_[0]);
  EXPECT_TRUE(Has(2, Kind::kFoldDrop));
  Report(2, old_root, v1::FoldReport::READY);
  EXPECT_FALSE(Has(2, Kind::kFoldCommit));
  h_.Clear();
  // The same task, executed again on another node.
  Put(3, 0);
  ASSERT_TRUE(FoldAt(2).has_value());
  const v1::Fold root = *FoldAt(2);
  EXPECT_NE(FromProto(root.version()), FromProto(old_root.version()));
  const Generation g = Announce(2, root);
  Report(2, root, v1::FoldReport::READY);
  EXPECT_TRUE(Has(2, Kind::kFoldCommit));
  h_.Seal(nodes_[2], kTarget, g);
  EXPECT_EQ(Code(2), 0);
}

TEST_F(ReduceTest, ASourceWithAnotherCopyMakesNoFoldStartOver) {
  AddNodes(4);
  for (int i = 0; i < 3; ++i) Put(i, i);
  h_.Want(nodes_[3], Source(0));
  h_.Finish(nodes_[3], Source(0));
  Reduce(2, 3);
  const v1::Fold before = *FoldAt(2);
  h_.Clear();
  h_.Down(nodes_[0]);
  ASSERT_TRUE(FoldAt(3).has_value());
  EXPECT_FALSE(Has(2, Kind::kFoldDrop));
  if (FoldAt(2).has_value()) {
    EXPECT_EQ(FromProto(FoldAt(2)->version()), FromProto(before.version()));
  }
}

// A chain of four slots, with a second copy of slot 1's source at node 4. Node 2 has 3 MiB of slot
// 1's output when its connection to node 1 breaks.
class MovedSlotTest : public ReduceTest {
 protected:
  MovedSlotTest() {
    AddNodes(5);
    for (int i = 0; i < 4; ++i) Put(i, i);
    h_.Want(nodes_[4], Source(1));
    h_.Finish(nodes_[4], Source(1));
    Reduce(3, 4);
    moved_ = *FoldAt(1);
    const v1::Fold above = *FoldAt(2);
    v1::NodeMessage message;
    v1::FoldReport& report = *message.mutable_fold_report();
    report.set_object_id(Bytes(kTarget));
    *report.mutable_version() = above.version();
    report.set_kind(v1::FoldReport::FAILED);
    report.set_code(Number(absl::StatusCode::kUnavailable));
    while (!above.inputs(static_cast<int>(report.input())).has_sender()) {
      report.set_input(report.input() + 1);
    }
    ToProto(nodes_[1], report.mutable_sender());
    report.set_watermark(3 << 20);
    Send(2, message);
    h_.Clear();
  }
  v1::Fold moved_;
};

TEST_F(MovedSlotTest, BeginsWhereTheFoldAboveIs) {
  EXPECT_EQ(moved_.begin(), 0u);
  h_.Down(nodes_[1]);
  ASSERT_TRUE(FoldAt(4).has_value());
  EXPECT_EQ(FromProto(FoldAt(4)->version()), FromProto(moved_.version()));
  EXPECT_EQ(FoldAt(4)->begin(), 3u << 20);
}

TEST_F(MovedSlotTest, BeginsAtTheFirstByteIfTheFoldAboveIsGone) {
  h_.Down(nodes_[2]);
  h_.Down(nodes_[1]);
  ASSERT_TRUE(FoldAt(4).has_value());
  EXPECT_EQ(FromProto(FoldAt(4)->version()), FromProto(moved_.version()));
  EXPECT_EQ(FoldAt(4)->begin(), 0u);
}

TEST_F(ReduceTest, AnAnnouncementOfAnOldVersionIsSentBack) {
  AddNodes(3);
  for (int i = 0; i < 3; ++i) Put(i, i);
  Reduce(2, 3);
  const v1::Fold old_root = *FoldAt(2);
  h_.Down(nodes_[0]);
  h_.Clear();
  Announce(2, old_root);
  EXPECT_TRUE(Has(2, Kind::kFoldDrop));
  EXPECT_EQ(h_.LastVerdict(nodes_[2]), v1::Verdict::SUPERSEDED);
}

TEST_F(ReduceTest, APutUnderTheTargetStandsByUntilTheReductionHasEnded) {
  AddNodes(3);
  Reduce(0, 3);
  h_.Create(nodes_[1], kTarget, {.complete = true});
  EXPECT_NE(h_.LastVerdict(nodes_[1]), v1::Verdict::ADOPTED);
  for (int i = 0; i < 3; ++i) Put(i, i);
  const v1::Fold root = *FoldAt(0);
  const Generation g = Announce(0, root);
  Report(0, root, v1::FoldReport::READY);
  h_.Seal(nodes_[0], kTarget, g);
  EXPECT_EQ(Code(0), 0);
  EXPECT_EQ(h_.LastVerdict(nodes_[1]), v1::Verdict::SUPERSEDED);
}

TEST_F(ReduceTest, DeletingTheTargetEndsItAndFreesEverything) {
  AddNodes(3);
  for (int i = 0; i < 3; ++i) Put(i, i);
  Reduce(2, 3);
  Announce(2, *FoldAt(2));
  h_.Delete(nodes_[0], kTarget);
  EXPECT_EQ(Code(2), Number(absl::StatusCode::kNotFound));
  for (const int node : {0, 1, 2}) EXPECT_TRUE(Has(node, Kind::kFoldDrop)) << node;
  EXPECT_EQ(h_.LastGone(nodes_[2]), v1::Gone::DELETED);
}

TEST_F(ReduceTest, DeletingASourceThatIsPlacedChangesNothing) {
  AddNodes(3);
  for (int i = 0; i < 3; ++i) Put(i, i);
  Reduce(2, 3);
  h_.Clear();
  h_.Delete(nodes_[0], Source(1));
  EXPECT_FALSE(Has(2, Kind::kFoldDrop));
  EXPECT_FALSE(Reply(2).has_value());
}

TEST_F(ReduceTest, AFailedProducerEndsItAndTheGetsOfItsObject) {
  AddNodes(3);
  Put(0, 0);
  Reduce(2, 3);
  h_.Want(nodes_[1], Source(1));
  v1::NodeMessage message;
  message.mutable_fail_request()->set_request_id(1);
  message.mutable_fail_request()->set_object_id(Bytes(Source(1)));
  message.mutable_fail_request()->set_code(Number(absl::StatusCode::kDataLoss));
  message.mutable_fail_request()->set_message("out of luck");
  Send(0, message);
  EXPECT_EQ(Code(2), Number(absl::StatusCode::kDataLoss));
  EXPECT_THAT(Reply(2)->message(), HasSubstr("out of luck"));
  EXPECT_EQ(h_.LastGone(nodes_[1]), v1::Gone::REFUSED);
  EXPECT_EQ(h_.Last(nodes_[0], Kind::kFailReply)->fail_reply().code(), 0);
  // The object is put after all: a Get finds it.
  Put(0, 1);
  h_.Want(nodes_[1], Source(1));
  EXPECT_EQ(h_.SenderOf(nodes_[1], Source(1)), nodes_[0]);
}

TEST_F(ReduceTest, ARestartedShardContinuesWithTheSameVersions) {
  AddNodes(3);
  std::vector<Generation> generations;
  for (int i = 0; i < 3; ++i) generations.push_back(Put(i, i));
  Reduce(2, 3);
  std::vector<v1::Fold> folds;
  for (int i = 0; i < 3; ++i) folds.push_back(*FoldAt(i));
  const Generation target = Announce(2, folds[2]);
  h_.Clear();
  h_.RestartShard();
  for (int i = 0; i < 3; ++i) {
    h_.NewSession(nodes_[i], /*had_session=*/true);
    h_.RegisterCopy(nodes_[i], Source(i), generations[i], {.size = kSize});
    v1::NodeMessage message = Registered(folds[i]);
    message.mutable_register_fold()->set_ready(folds[i].root());
    Send(i, message);
    h_.RegisterEnd(nodes_[i]);
  }
  Reduce(2, 3);
  h_.Advance(absl::Seconds(2));
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(FoldAt(i).has_value()) << i;
    EXPECT_EQ(FromProto(FoldAt(i)->version()), FromProto(folds[i].version())) << i;
    EXPECT_FALSE(Has(i, Kind::kFoldDrop)) << i;
  }
  EXPECT_TRUE(Has(2, Kind::kFoldCommit));
  h_.Announce(nodes_[2], kTarget, target, {.size = kSize, .complete = true});
}

TEST_F(ReduceTest, ARestartedShardDoesWithoutARootThatDoesNotComeBack) {
  AddNodes(3);
  std::vector<Generation> generations;
  for (int i = 0; i < 2; ++i) generations.push_back(Put(i, i));
  Reduce(2, 2);
  ASSERT_TRUE(FoldAt(2).has_value());
  v1::NodeMessage asked;
  v1::RegisterFold& fold = *asked.mutable_register_fold();
  *fold.mutable_version() = FoldAt(0)->version();
  fold.set_object_id(Bytes(kTarget));
  fold.set_slots(2);
  fold.set_degree(1);
  fold.add_source_ids(Bytes(Source(0)));
  v1::NodeMessage kept = Request(2);
  kept.mutable_reduce_request()->set_request_id(0);
  ToProto(nodes_[2], kept.mutable_reduce_request()->mutable_reduction()->mutable_root());
  h_.Clear();
  h_.RestartShard();
  for (int i = 0; i < 2; ++i) {
    h_.NewSession(nodes_[i], /*had_session=*/true);
    h_.RegisterCopy(nodes_[i], Source(i), generations[i], {.size = kSize});
    if (i == 0) Send(i, kept);
    if (i == 0) Send(i, asked);
    h_.RegisterEnd(nodes_[i]);
  }
  h_.Advance(absl::Seconds(10));
  ASSERT_TRUE(FoldAt(1).has_value());
  EXPECT_TRUE(FoldAt(1)->root());
}

TEST_F(ReduceTest, AFoldWithoutAReductionIsDroppedWhenItIsRegistered) {
  AddNodes(1);
  h_.NewSession(nodes_[0], /*had_session=*/true);
  v1::NodeMessage message;
  v1::RegisterFold& fold = *message.mutable_register_fold();
  fold.set_object_id(Bytes(kTarget));
  ToProto(Generation{NodeKey{5, 6}, 1}, fold.mutable_version());
  fold.set_slots(3);
  fold.set_degree(1);
  Send(0, message);
  h_.RegisterEnd(nodes_[0]);
  EXPECT_TRUE(Has(0, Kind::kFoldDrop));
}

TEST_F(ReduceTest, AFoldWithoutMemoryIsPlacedAgainAfterAPause) {
  AddNodes(3);
  for (int i = 0; i < 3; ++i) Put(i, i);
  Reduce(2, 3);
  const v1::Fold root = *FoldAt(2);
  h_.Clear();
  Report(2, root, v1::FoldReport::NO_MEMORY);
  EXPECT_FALSE(FoldAt(2).has_value());
  h_.Advance(absl::Milliseconds(50));
  ASSERT_TRUE(FoldAt(2).has_value());
  EXPECT_EQ(FromProto(FoldAt(2)->version()), FromProto(root.version()));
}

TEST_F(ReduceTest, AResultLostBeforeAnyNodeHadItIsComputedAgain) {
  AddNodes(4);
  for (int i = 0; i < 3; ++i) Put(i, i);
  Reduce(3, 3);
  Reduce(0, 3, /*root_here=*/false);
  const v1::Fold root = *FoldAt(3);
  Announce(3, root);
  Report(3, root, v1::FoldReport::READY);
  ASSERT_TRUE(Has(3, Kind::kFoldCommit));
  h_.Clear();
  h_.Down(nodes_[3]);
  h_.Advance(absl::Seconds(2));
  const int again = RootAt();
  ASSERT_GE(again, 0);
  const v1::Fold fold = *FoldAt(again);
  const Generation g = Announce(again, fold);
  Report(again, fold, v1::FoldReport::READY);
  h_.Seal(nodes_[again], kTarget, g);
  EXPECT_EQ(Code(0), 0);
}

TEST_F(ReduceTest, TheShardWaitsForAResultCommittedAtTheDeadline) {
  AddNodes(3);
  for (int i = 0; i < 3; ++i) Put(i, i);
  v1::NodeMessage message = Request(3);
  message.mutable_reduce_request()->set_timeout_ms(500);
  ToProto(nodes_[2], message.mutable_reduce_request()->mutable_reduction()->mutable_root());
  Send(2, message);
  const v1::Fold root = *FoldAt(2);
  const Generation g = Announce(2, root);
  Report(2, root, v1::FoldReport::READY);
  h_.Advance(absl::Milliseconds(600));
  EXPECT_FALSE(Reply(2).has_value());
  h_.Seal(nodes_[2], kTarget, g);
  EXPECT_EQ(Code(2), 0);
}

TEST_F(ReduceTest, ACommittedFoldWithoutItsSourceIsPlacedAgain) {
  AddNodes(3);
  for (int i = 0; i < 3; ++i) Put(i, i);
  Reduce(2, 3);
  const v1::Fold root = *FoldAt(2);
  Announce(2, root);
  Report(2, root, v1::FoldReport::READY);
  ASSERT_TRUE(Has(2, Kind::kFoldCommit));
  h_.Want(nodes_[0], Source(2));
  h_.Finish(nodes_[0], Source(2));
  h_.Clear();
  uint32_t own = 0;
  while (root.inputs(static_cast<int>(own)).source_id() != Bytes(Source(2))) ++own;
  v1::NodeMessage message;
  message.mutable_fold_report()->set_object_id(Bytes(kTarget));
  *message.mutable_fold_report()->mutable_version() = root.version();
  message.mutable_fold_report()->set_kind(v1::FoldReport::FAILED);
  message.mutable_fold_report()->set_input(own);
  message.mutable_fold_report()->set_code(Number(absl::StatusCode::kNotFound));
  Send(2, message);
  // The fold uses source 2 at its other node.
  bool elsewhere = false;
  for (const int node : {0, 1}) {
    for (const v1::ShardMessage& message : h_.Received(nodes_[node])) {
      for (const v1::Fold::Input& input : message.fold().inputs()) {
        elsewhere |= input.source_id() == Bytes(Source(2)) && node == 0;
      }
    }
  }
  EXPECT_TRUE(elsewhere);
}

TEST_F(ReduceTest, AResultWithoutACopyIsComputedAgainThoughANodeWaitsForIt) {
  AddNodes(4);
  for (int i = 0; i < 3; ++i) Put(i, i);
  Reduce(3, 3);
  const v1::Fold root = *FoldAt(3);
  const Generation g = Announce(3, root);
  Report(3, root, v1::FoldReport::READY);
  h_.Seal(nodes_[3], kTarget, g);
  ASSERT_EQ(Code(3), 0);
  h_.Connected(nodes_[3], false);
  h_.Want(nodes_[0], kTarget);
  h_.Down(nodes_[3]);
  h_.Clear();
  Reduce(0, 3, /*root_here=*/false);
  EXPECT_FALSE(Reply(0).has_value());
  EXPECT_GE(RootAt(), 0);
}

TEST_F(ReduceTest, ADeletedSourceIsMissedWhenTheNodeThatHeldItDies) {
  AddNodes(3);
  for (int i = 0; i < 3; ++i) Put(i, i);
  Reduce(2, 3);
  h_.Delete(nodes_[2], Source(0));
  EXPECT_FALSE(Reply(2).has_value());
  h_.Down(nodes_[0]);
  EXPECT_EQ(Code(2), Number(absl::StatusCode::kNotFound));
}

TEST_F(ReduceTest, AnExtensionThatIsAskedForAgainIsCarriedOutOnce) {
  AddNodes(2);
  v1::NodeMessage open = Request(1);
  open.mutable_reduce_request()->mutable_reduction()->set_open(true);
  Send(0, open);
  v1::NodeMessage extend;
  extend.mutable_extend_request()->set_request_id(77);
  extend.mutable_extend_request()->set_object_id(Bytes(kTarget));
  extend.mutable_extend_request()->add_source_ids(Bytes(Source(1)));
  for (const bool again : {false, true}) {
    extend.mutable_extend_request()->set_again(again);
    Send(0, extend);
    EXPECT_EQ(h_.Last(nodes_[0], Kind::kExtendReply)->extend_reply().code(), 0);
  }
  extend.mutable_extend_request()->set_again(false);
  Send(0, extend);
  EXPECT_EQ(h_.Last(nodes_[0], Kind::kExtendReply)->extend_reply().code(),
            Number(absl::StatusCode::kInvalidArgument));
}

TEST_F(ReduceTest, ATargetIsASourceOnceItIsCommitted) {
  AddNodes(4);
  for (int i = 0; i < 3; ++i) Put(i, i);
  Reduce(2, 3);
  v1::NodeMessage second;
  v1::ReduceRequest& request = *second.mutable_reduce_request();
  request.set_request_id(99);
  request.set_object_id(Bytes(Id("second")));
  request.mutable_reduction()->set_dtype(static_cast<uint32_t>(DType::kF32));
  request.mutable_reduction()->add_source_ids(Bytes(kTarget));
  Send(3, second);
  const v1::Fold root = *FoldAt(2);
  const Generation g = Announce(2, root);
  Report(2, root, v1::FoldReport::READY);
  const int before = h_.Count(nodes_[2], Kind::kFold);
  h_.Seal(nodes_[2], kTarget, g);
  EXPECT_GT(h_.Count(nodes_[2], Kind::kFold), before);
}

TEST_F(ReduceTest, SourcesOfOtherShardsAreWatchedThroughTheRootsNode) {
  DirectoryOptions options;
  options.num_shards = 2;
  options.shard_index = static_cast<int>(kTarget.ShardHash() % 2);
  Harness h(/*learning=*/false, options);
  const NodeKey a = h.Up("a");
  const NodeKey b = h.Up("b");
  std::vector<ObjectId> ours;
  std::vector<ObjectId> theirs;
  for (int i = 0; ours.empty() || theirs.empty(); ++i) {
    const bool own = Source(i).ShardHash() % 2 == kTarget.ShardHash() % 2;
    (own ? ours : theirs).push_back(Source(i));
  }
  v1::NodeMessage message;
  v1::ReduceRequest& request = *message.mutable_reduce_request();
  request.set_request_id(1);
  request.set_object_id(Bytes(kTarget));
  request.mutable_reduction()->set_dtype(static_cast<uint32_t>(DType::kF32));
  ToProto(b, request.mutable_reduction()->mutable_root());
  request.mutable_reduction()->add_source_ids(Bytes(ours[0]));
  request.mutable_reduction()->add_source_ids(Bytes(theirs[0]));
  ASSERT_TRUE(h.Send(b, message).ok());
  const auto watch = h.Last(b, Kind::kWatchSource);
  ASSERT_TRUE(watch.has_value());
  ASSERT_EQ(watch->watch_source().source_ids_size(), 1);
  EXPECT_EQ(watch->watch_source().source_ids(0), Bytes(theirs[0]));
  h.Create(b, ours[0], {.size = kSize, .complete = true});
  EXPECT_FALSE(h.Last(a, Kind::kFold).has_value());
  v1::NodeMessage state;
  v1::SourceState& reported = *state.mutable_source_state();
  reported.set_target_id(Bytes(kTarget));
  reported.set_source_id(Bytes(theirs[0]));
  ToProto(h.NewGeneration(a), reported.mutable_generation());
  reported.set_size_bytes(kSize);
  ToProto(a, reported.add_holders()->mutable_node());
  reported.mutable_holders(0)->set_complete(true);
  ASSERT_TRUE(h.Send(b, state).ok());
  EXPECT_TRUE(h.Last(a, Kind::kFold).has_value());
  EXPECT_TRUE(h.Last(b, Kind::kFold).has_value());
  // If that node dies, the shard watches through another one.
  h.Down(b);
  const auto again = h.Last(a, Kind::kWatchSource);
  ASSERT_TRUE(again.has_value());
  EXPECT_EQ(again->watch_source().source_ids(0), Bytes(theirs[0]));
}

TEST_F(ReduceTest, AShardReportsItsSourcesAtOnceAndWheneverTheyChange) {
  AddNodes(2);
  v1::NodeMessage message;
  message.mutable_watch_source()->set_target_id(Bytes(kTarget));
  message.mutable_watch_source()->add_source_ids(Bytes(Source(0)));
  Send(1, message);
  ASSERT_TRUE(Has(1, Kind::kSourceState));
  EXPECT_FALSE(h_.Last(nodes_[1], Kind::kSourceState)->source_state().has_generation());
  const Generation g = Put(0, 0, 1024);
  const v1::SourceState state = h_.Last(nodes_[1], Kind::kSourceState)->source_state();
  EXPECT_EQ(FromProto(state.generation()), g);
  EXPECT_EQ(state.inline_bytes(), std::string(1024, 'a'));
  ASSERT_EQ(state.holders_size(), 1);
  EXPECT_EQ(FromProto(state.holders(0).node()), nodes_[0]);
  h_.Down(nodes_[0]);
  EXPECT_FALSE(h_.Last(nodes_[1], Kind::kSourceState)->source_state().has_generation());
  message.mutable_watch_source()->set_end(true);
  Send(1, message);
  h_.Clear();
  AddNodes(1);
  Put(2, 0);
  EXPECT_FALSE(Has(1, Kind::kSourceState));
}

TEST_F(ReduceTest, ADescriptionShowsTheTreeAndTheMissingSources) {
  AddNodes(3);
  Put(0, 0);
  Put(1, 1);
  Reduce(2, 3);
  const v1::ReductionDescription described = h_.Describe(kTarget).reduction();
  EXPECT_EQ(described.needed(), 3);
  EXPECT_EQ(described.ready(), 2);
  EXPECT_EQ(described.spares(), 0);
  EXPECT_EQ(described.asking(), 1);
  ASSERT_EQ(described.missing_source_ids_size(), 1);
  EXPECT_EQ(described.missing_source_ids(0), Bytes(Source(2)));
  std::set<std::string> names;
  for (const auto& slot : described.slots()) names.insert(slot.node_name());
  EXPECT_TRUE(names.contains("n0"));
  EXPECT_TRUE(names.contains("n1"));
}

}  // namespace
}  // namespace phalanx::directory
