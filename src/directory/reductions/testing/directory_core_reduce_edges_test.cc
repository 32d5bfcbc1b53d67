// Edge cases of reductions: targets that are deleted early, requests for an existing result with
// other arguments, sources of a shard that still learns, and limits.
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
using testing::Harness;
using ::testing::HasSubstr;
using testing::Id;
using testing::kTarget;

class ReduceEdges : public testing::ReduceTest {
 protected:
  // The reply to the request, sent from node 0.
  v1::ReduceReply Ask(v1::NodeMessage message) {
    h_.Clear();
    message.mutable_reduce_request()->set_request_id(++requests_);
    Send(0, message);
    return Reply(0).value_or(v1::ReduceReply());
  }
  // The result of sources 0 to 2, on node 2.
  Generation Finish(const v1::NodeMessage& request) {
    for (int i = 0; i < 3; ++i) Put(i, i);
    Send(2, request);
    const int at = RootAt();
    const v1::Fold root = *FoldAt(at);
    const Generation g = Announce(at, root);
    Report(at, root, v1::FoldReport::READY);
    h_.Seal(nodes_[at], kTarget, g);
    EXPECT_EQ(Code(2), 0);
    return g;
  }
  static v1::Reduction& In(v1::NodeMessage& message) {
    return *message.mutable_reduce_request()->mutable_reduction();
  }
};

// ---- existing results

TEST_F(ReduceEdges, AResultAnswersOnlyARequestWithTheSameArguments) {
  AddNodes(3);
  const v1::NodeMessage request = Request(3);
  Finish(request);
  EXPECT_EQ(Ask(request).code(), 0);
  v1::NodeMessage elsewhere = request;
  ToProto(nodes_[1], In(elsewhere).mutable_root());
  EXPECT_EQ(Ask(elsewhere).code(), 0) << "whoever computes the root";
  const auto differs = [&](v1::NodeMessage other, const std::string& what) {
    const v1::ReduceReply reply = Ask(other);
    EXPECT_EQ(reply.code(), Number(absl::StatusCode::kAlreadyExists)) << what;
    EXPECT_THAT(reply.message(), HasSubstr(what));
  };
  v1::NodeMessage other = request;
  In(other).set_op(static_cast<uint32_t>(ReduceOp::kMax));
  differs(other, "op");
  other = request;
  In(other).set_dtype(static_cast<uint32_t>(DType::kI32));
  differs(other, "dtype");
  other = request;
  In(other).set_order(1);
  differs(other, "order");
  other = request;
  In(other).set_range_bytes(64);
  differs(other, "range");
  other = request;
  In(other).set_num_objects(2);
  differs(other, "number of objects");
  differs(Request(4), "sources");
  differs(Request(2), "sources");
}

TEST_F(ReduceEdges, AfterARestartAResultIsComparedBySourcesAndSize) {
  AddNodes(3);
  v1::NodeMessage request = Request(3);
  const Generation g = Finish(request);
  h_.Clear();
  h_.RestartShard();
  h_.NewSession(nodes_[2], /*had_session=*/true);
  v1::NodeMessage message;
  v1::RegisterCopy& copy = *message.mutable_register_copy();
  copy.set_object_id(Bytes(kTarget));
  ToProto(g, copy.mutable_generation());
  copy.mutable_info()->set_size_bytes(kSize);
  copy.mutable_info()->set_slices(1);
  for (int i = 0; i < 3; ++i) copy.mutable_info()->mutable_reduced_from()->append(Bytes(Source(i)));
  copy.set_adopted(true);
  copy.set_complete(true);
  Send(2, message);
  h_.RegisterEnd(nodes_[2]);
  h_.NewSession(nodes_[0], /*had_session=*/true);
  h_.RegisterEnd(nodes_[0]);
  h_.Advance(absl::Seconds(3));
  EXPECT_EQ(Ask(request).code(), 0);
  In(request).set_op(static_cast<uint32_t>(ReduceOp::kMax));
  EXPECT_EQ(Ask(request).code(), 0) << "of the op nobody knows";
  EXPECT_EQ(Ask(Request(4)).code(), Number(absl::StatusCode::kAlreadyExists));
  EXPECT_EQ(Ask(Request(2)).code(), Number(absl::StatusCode::kAlreadyExists));
  v1::NodeMessage two = Request(3);
  In(two).set_num_objects(2);
  EXPECT_EQ(Ask(two).code(), Number(absl::StatusCode::kAlreadyExists));
  v1::NodeMessage range = Request(3);
  In(range).set_range_bytes(64);
  EXPECT_THAT(Ask(range).message(), HasSubstr("range"));
  v1::NodeMessage turned = Request(0);
  for (int i = 2; i >= 0; --i) In(turned).add_source_ids(Bytes(Source(i)));
  EXPECT_EQ(Ask(turned).code(), 0);
  In(turned).set_order(1);
  EXPECT_THAT(Ask(turned).message(), HasSubstr("order"));
}

// ---- targets that are deleted before they exist

TEST_F(ReduceEdges, ARetryDoesNotBringBackATargetThatWasDeletedEarly) {
  AddNodes(3);
  Reduce(0, 3);
  h_.Want(nodes_[2], kTarget);
  h_.Delete(nodes_[1], kTarget);
  EXPECT_EQ(h_.LastGone(nodes_[2]), v1::Gone::DELETED);
  EXPECT_EQ(h_.Last(nodes_[1], Kind::kDeleteReply)->delete_reply().generations_size(), 1);
  v1::NodeMessage again = Request(3);
  again.mutable_reduce_request()->set_again(true);
  EXPECT_EQ(Ask(again).code(), Number(absl::StatusCode::kNotFound));
  v1::NodeMessage kept = Request(3);
  kept.mutable_reduce_request()->set_request_id(0);
  h_.Clear();
  Send(2, kept);
  EXPECT_TRUE(h_.Last(nodes_[2], Kind::kKeepReduction)->keep_reduction().forget());
  EXPECT_FALSE(h_.Describe(kTarget).has_reduction());
}

TEST_F(ReduceEdges, ATargetThatWasDeletedEarlyCanBeReducedAgain) {
  AddNodes(3);
  Reduce(0, 3);
  h_.Delete(nodes_[1], kTarget);
  h_.Clear();
  Finish(Request(3));
}

TEST_F(ReduceEdges, ALateRootDoesNotBringADeletedTargetBackToARestartedShard) {
  for (const bool tombstone_first : {true, false}) {
    SCOPED_TRACE(tombstone_first);
    nodes_.clear();
    h_.RestartShard();
    AddNodes(3);
    h_.Advance(absl::Seconds(3));
    for (int i = 0; i < 3; ++i) Put(i, i, 1024);
    Reduce(2, 3);
    const v1::Fold root = *FoldAt(2);
    ASSERT_TRUE(root.committed());
    h_.Delete(nodes_[1], kTarget);
    const v1::Generation deleted =
        h_.Last(nodes_[1], Kind::kDeleteReply)->delete_reply().generations(0);
    h_.Clear();
    h_.RestartShard();
    const auto tombstone = [&] {
      h_.NewSession(nodes_[1], /*had_session=*/true);
      h_.RegisterTombstone(nodes_[1], kTarget, FromProto(deleted));
      h_.RegisterEnd(nodes_[1]);
    };
    if (tombstone_first) tombstone();
    // The root has sealed its result and has no message about the Delete.
    h_.NewSession(nodes_[2], /*had_session=*/true);
    const Generation late = h_.NewGeneration(nodes_[2]);
    v1::NodeMessage message;
    v1::RegisterCopy& copy = *message.mutable_register_copy();
    copy.set_object_id(Bytes(kTarget));
    ToProto(late, copy.mutable_generation());
    *copy.mutable_info() = ResultOf(root);
    copy.set_complete(true);
    copy.set_primary(true);
    Send(2, message);
    message.Clear();
    v1::RegisterFold& fold = *message.mutable_register_fold();
    fold.set_object_id(Bytes(kTarget));
    *fold.mutable_version() = root.version();
    *fold.mutable_begun() = root.begun();
    fold.set_slots(1);
    fold.set_degree(1);
    fold.set_root(true);
    ToProto(late, fold.mutable_generation());
    Send(2, message);
    h_.RegisterEnd(nodes_[2]);
    if (!tombstone_first) tombstone();
    h_.Advance(absl::Seconds(3));
    EXPECT_TRUE(Has(2, Kind::kFoldDrop));
    EXPECT_EQ(h_.LastVerdict(nodes_[2]), v1::Verdict::DELETED);
    EXPECT_EQ(h_.Describe(kTarget).summary().complete_copies(), 0u);
  }
}

// ---- sources of a shard that learns

class LearningSources : public ReduceEdges {
 protected:
  void Watch(int node) {
    v1::NodeMessage message;
    message.mutable_watch_source()->set_target_id(Bytes(kTarget));
    message.mutable_watch_source()->add_source_ids(Bytes(Source(0)));
    Send(node, message);
  }
  void Restart() {
    h_.Clear();
    h_.RestartShard();
    h_.NewSession(nodes_[1], /*had_session=*/true);
    h_.RegisterEnd(nodes_[1]);
    Watch(1);
  }
};

TEST_F(LearningSources, AreNotReportedAbsentWhileTheShardLearns) {
  AddNodes(2);
  const Generation g = Put(0, 0);
  Restart();
  EXPECT_FALSE(Has(1, Kind::kSourceState));
  h_.NewSession(nodes_[0], /*had_session=*/true);
  h_.RegisterCopy(nodes_[0], Source(0), g, {.size = kSize});
  h_.RegisterEnd(nodes_[0]);
  ASSERT_TRUE(Has(1, Kind::kSourceState)) << "what is there is told at once";
  EXPECT_EQ(FromProto(h_.Last(nodes_[1], Kind::kSourceState)->source_state().generation()), g);
}

TEST_F(LearningSources, AreReportedAbsentWhenLearningEnds) {
  AddNodes(2);
  Restart();
  h_.Advance(absl::Seconds(3));
  ASSERT_TRUE(Has(1, Kind::kSourceState));
  EXPECT_FALSE(h_.Last(nodes_[1], Kind::kSourceState)->source_state().has_generation());
}

TEST_F(LearningSources, AreNotReportedDeletedForATombstoneOfAnEarlierGeneration) {
  AddNodes(3);
  h_.Clear();
  h_.RestartShard();
  h_.NewSession(nodes_[1], /*had_session=*/true);
  h_.RegisterTombstone(nodes_[1], Source(0), Generation{nodes_[0], 9});
  h_.RegisterEnd(nodes_[1]);
  h_.NewSession(nodes_[2], /*had_session=*/true);
  h_.RegisterEnd(nodes_[2]);
  Watch(1);
  Reduce(2, 1);
  EXPECT_FALSE(Has(1, Kind::kSourceState));
  h_.NewSession(nodes_[0], /*had_session=*/true);
  h_.RegisterCopy(nodes_[0], Source(0), Generation{nodes_[0], 10}, {.size = kSize});
  h_.RegisterEnd(nodes_[0]);
  h_.Advance(absl::Seconds(3));
  EXPECT_EQ(h_.Last(nodes_[1], Kind::kSourceState)->source_state().code(), 0);
  EXPECT_FALSE(Reply(2).has_value()) << "it was put again";
  EXPECT_GE(RootAt(), 0);
}

// ---- limits

TEST_F(ReduceEdges, ARequestBeyondTheLimitIsRefused) {
  DirectoryOptions options;
  options.max_reduce_requesters = 2;
  Harness h(/*learning=*/false, options);
  const NodeKey a = h.Up("a");
  const NodeKey b = h.Up("b");
  for (const NodeKey& node : {a, a, b}) ASSERT_TRUE(h.Send(node, Request(2)).ok());
  EXPECT_EQ(h.Count(a, Kind::kReduceReply), 0);
  ASSERT_EQ(h.Count(b, Kind::kReduceReply), 1);
  EXPECT_EQ(h.Last(b, Kind::kReduceReply)->reduce_reply().code(),
            Number(absl::StatusCode::kResourceExhausted));
  h.Down(a);
  h.Clear();
  ASSERT_TRUE(h.Send(b, Request(2)).ok());
  EXPECT_EQ(h.Count(b, Kind::kReduceReply), 0) << "there is room again";
}

TEST_F(ReduceEdges, AnotherShardIsSentNoMoreBytesAtATimeThanItKeeps) {
  AddNodes(2);
  constexpr int kMany = 40;
  v1::NodeMessage message;
  message.mutable_watch_source()->set_target_id(Bytes(kTarget));
  for (int i = 0; i < kMany; ++i) {
    Put(0, i, 65536);
    message.mutable_watch_source()->add_source_ids(Bytes(Source(i)));
  }
  h_.Clear();
  Send(1, message);
  size_t bytes = 0;
  for (const v1::ShardMessage& told : h_.Received(nodes_[1])) {
    const v1::SourceState& state = told.source_state();
    bytes += state.inline_bytes().size();
    EXPECT_EQ(state.has_inline(), !state.inline_bytes().empty());
    EXPECT_EQ(state.holders_size(), 1) << "where they can be had";
  }
  EXPECT_EQ(h_.Count(nodes_[1], Kind::kSourceState), kMany);
  EXPECT_EQ(bytes, size_t{1} << 20);
}

TEST_F(ReduceEdges, AnotherShardIsSentNoBytesWhileTooManyAreUnderWay) {
  AddNodes(2);
  Put(0, 0, 1024);
  h_.core().NoteUnderWay(uint64_t{128} << 20);
  v1::NodeMessage message;
  message.mutable_watch_source()->set_target_id(Bytes(kTarget));
  message.mutable_watch_source()->add_source_ids(Bytes(Source(0)));
  Send(1, message);
  const v1::SourceState state = h_.Last(nodes_[1], Kind::kSourceState)->source_state();
  EXPECT_TRUE(state.has_generation());
  EXPECT_FALSE(state.has_inline());
}

TEST_F(ReduceEdges, WhatItsNodeHasNoMemoryForEndsAtTheDeadlineAlthoughItIsCommitted) {
  AddNodes(3);
  for (int i = 0; i < 3; ++i) Put(i, i, 1024);
  v1::NodeMessage message = Request(3);
  message.mutable_reduce_request()->set_timeout_ms(500);
  Send(2, message);
  const int root = RootAt();
  ASSERT_GE(root, 0);
  ASSERT_TRUE(FoldAt(root)->committed());
  h_.Advance(absl::Seconds(1));
  EXPECT_FALSE(Reply(2).has_value()) << "it may be about to be announced";
  Report(root, *FoldAt(root), v1::FoldReport::NO_MEMORY);
  h_.Advance(absl::Seconds(5));
  EXPECT_EQ(Code(2), Number(absl::StatusCode::kDeadlineExceeded));
}

TEST_F(ReduceEdges, APartOfAListIsOfAnOpenReductionAndLeavesNothingWhenItIsRefused) {
  AddNodes(2);
  v1::NodeMessage message = Request(1);
  v1::Reduction& asked = *message.mutable_reduce_request()->mutable_reduction();
  asked.set_first_source(1);
  Send(0, message);
  EXPECT_EQ(Code(0), Number(absl::StatusCode::kInvalidArgument));
  h_.Clear();
  asked.set_open(true);
  asked.set_first_source(kMaxReduceSources);
  Send(0, message);
  EXPECT_EQ(Code(0), Number(absl::StatusCode::kInvalidArgument));
  h_.Clear();
  // A later object can have that id.
  Put(0, 0);
  Put(1, 1);
  Reduce(1, 2);
  EXPECT_EQ(RootAt(), 1);
}

TEST_F(ReduceEdges, ASourceWithThousandsOfCopiesIsReportedWithAFewOfThem) {
  AddNodes(400);
  Put(399, 0);
  h_.Want(nodes_[398], Source(0));
  h_.Finish(nodes_[398], Source(0));
  for (int i = 0; i < 398; ++i) h_.Want(nodes_[i], Source(0));
  h_.Down(nodes_[399]);
  Reduce(0, 1);
  EXPECT_GE(RootAt(), 0) << "the one that is complete is among them";
}

// ---- senders that stop

// Half of an input was there when its sender fell silent.
TEST_F(ReduceEdges, ADisconnectIsNoSignOfLife) {
  AddNodes(4);
  for (int i = 0; i < 4; ++i) Put(i, i);
  v1::NodeMessage request = Request(4);
  In(request).set_num_objects(3);
  Send(0, request);
  std::vector<int> spare, receivers;
  for (int i = 0; i < 4; ++i) {
    if (!FoldAt(i).has_value()) spare.push_back(i);
    if (FoldAt(i).has_value() && FoldAt(i)->inputs_size() == 2) receivers.push_back(i);
  }
  ASSERT_EQ(spare.size(), 1u);
  ASSERT_FALSE(receivers.empty());
  const int receiver = receivers.front();
  const v1::Fold fold = *FoldAt(receiver);
  const uint32_t input = fold.inputs(0).has_sender() ? 0 : 1;
  ASSERT_TRUE(fold.inputs(static_cast<int>(input)).has_sender());
  const v1::NodeKey& sender = fold.inputs(static_cast<int>(input)).sender();
  for (int i = 0; i < 2; ++i) {
    h_.Advance(absl::Milliseconds(40));
    v1::NodeMessage message;
    v1::FoldReport& report = *message.mutable_fold_report();
    report.set_object_id(Bytes(kTarget));
    *report.mutable_version() = fold.version();
    report.set_kind(v1::FoldReport::PROGRESS);
    report.mutable_pace()->set_input(input);
    *report.mutable_pace()->mutable_sender() = sender;
    report.mutable_pace()->set_watermark(kSize / 2);
    report.mutable_pace()->set_bytes_per_second(100e6);
    report.mutable_pace()->set_silent_ns(static_cast<uint64_t>(i + 1) * 30'000'000);
    Send(receiver, message);
  }
  h_.Connected(FromProto(sender), false);
  h_.Clear();
  h_.Advance(absl::Seconds(1));
  EXPECT_TRUE(FoldAt(spare.front()).has_value()) << "the spare replaces it";
}

}  // namespace
}  // namespace phalanx::directory
