// Ended reductions, and later reductions of the same target. A node that was away and still
// requests, keeps, folds or extends the ended one changes nothing of the later one.
#include <functional>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "src/common/elements.h"
#include "src/directory/core/directory_core.h"
#include "src/directory/core/reduce_messages.h"
#include "src/directory/core/validate.h"
#include "src/directory/reductions/testing/directory_core_reduce_harness.h"
#include "src/directory/testing/directory_core_harness.h"

namespace phalanx::directory {
namespace {

using testing::Bytes;
using ::testing::HasSubstr;
using testing::kTarget;

class Ended : public testing::KeepingTest {
 protected:
  // An open reduction of sources 0 and 1. Only node 1 keeps the second source, and it is away when
  // the target is deleted.
  void EndWhileItsKeeperIsAway() {
    AddNodes(4);
    Open(0, 1);
    ASSERT_EQ(Add(1, {1}), 0);
    h_.Down(nodes_[1]);
    h_.Delete(nodes_[3], kTarget);
    deleted_ = FromProto(h_.Last(nodes_[3], Kind::kDeleteReply)->delete_reply().generations(0));
    Hear();
    ASSERT_EQ(Code(0), Number(absl::StatusCode::kNotFound));
    h_.Clear();
  }
  // Another one, of sources 0 and 5.
  void OpenAnother() {
    Open(2, 1);
    ASSERT_EQ(Add(2, {5}), 0);
  }
  void StartOver() {
    nodes_.clear();
    kept_.clear();
    asked_.clear();
    h_.RestartShard();
    h_.Advance(absl::Seconds(3));
  }
  bool Forgets(int node) {
    const auto told = h_.Last(nodes_[node], Kind::kKeepReduction);
    return told.has_value() && told->keep_reduction().forget();
  }
  // Registers node i with its copy of source i, its reductions and the fold.
  void RegisterWithFold(int node, const Generation& source, const v1::Fold& fold) {
    h_.NewSession(nodes_[node], /*had_session=*/true);
    h_.RegisterCopy(nodes_[node], Source(node), source, {.size = kSize});
    RegisterReductions(node);
    Send(node, Registered(fold));
    h_.RegisterEnd(nodes_[node]);
  }
  void RegisterResult(int node, const Generation& generation, const v1::Fold& root) {
    h_.NewSession(nodes_[node], /*had_session=*/true);
    v1::NodeMessage message;
    v1::RegisterCopy& copy = *message.mutable_register_copy();
    copy.set_object_id(Bytes(kTarget));
    ToProto(generation, copy.mutable_generation());
    *copy.mutable_info() = ResultOf(root);
    copy.set_primary(true);
    copy.set_adopted(true);
    copy.set_complete(true);
    Send(node, message);
    h_.RegisterEnd(nodes_[node]);
  }
  // The reply to the request, sent under a new number.
  v1::ReduceReply Answer(int node, v1::NodeMessage message) {
    h_.Clear();
    message.mutable_reduce_request()->set_request_id(++requests_);
    Send(node, message);
    return Reply(node).value_or(v1::ReduceReply());
  }
  // Executes the orders and seals the result.
  Generation MakeResult() {
    const int at = RootAt();
    root_ = *FoldAt(at);
    const Generation g = Announce(at, root_);
    Report(at, root_, v1::FoldReport::READY);
    h_.Seal(nodes_[at], kTarget, g);
    return g;
  }

  Generation deleted_;
  v1::Fold root_;
};

// ---- keepers

TEST_F(Ended, AReturningHolderOfAnEndedOneDoesNotChangeTheNextOne) {
  EndWhileItsKeeperIsAway();
  OpenAnother();
  h_.Clear();
  ComeBack(1);
  EXPECT_EQ(Code(2), -1) << Reply(2)->message();
  EXPECT_TRUE(Forgets(1));
  EXPECT_EQ(KnownSources(), Ids({0, 5}));
}

TEST_F(Ended, AReturningHolderDoesNotBringAnEndedOneBack) {
  AddNodes(2);
  v1::NodeMessage message = OpenRequest(1);
  message.mutable_reduce_request()->set_timeout_ms(500);
  Ask(0, message);
  ASSERT_EQ(Add(1, {1}), 0);
  h_.Down(nodes_[1]);
  h_.Advance(absl::Milliseconds(500));
  ASSERT_EQ(Code(0), Number(absl::StatusCode::kDeadlineExceeded));
  h_.Clear();
  ComeBack(1);
  EXPECT_TRUE(Forgets(1));
  EXPECT_FALSE(UnderWay());
}

TEST_F(Ended, TheLaterOfTwoRegisteredOnesRuns) {
  for (const std::vector<int>& order : {std::vector<int>{1, 2}, std::vector<int>{2, 1}}) {
    SCOPED_TRACE(order[0]);
    StartOver();
    EndWhileItsKeeperIsAway();
    OpenAnother();
    Restart(order);
    EXPECT_EQ(KnownSources(), Ids({0, 5}));
    EXPECT_EQ(Code(2), -1) << Reply(2)->message();
    EXPECT_TRUE(kept_[1].empty());
    EXPECT_FALSE(kept_[2].empty());
  }
}

TEST_F(Ended, TheLaterOneReplacesTheEarlierThoughItIsRegisteredLate) {
  EndWhileItsKeeperIsAway();
  // All of it.
  v1::Reduction& kept = *kept_[1][0].mutable_reduce_request()->mutable_reduction();
  kept.clear_first_source();
  kept.clear_source_ids();
  for (const int i : {0, 1}) kept.add_source_ids(Bytes(Source(i)));
  OpenAnother();
  Restart({1});
  EXPECT_EQ(KnownSources(), Ids({0, 1}));
  ComeBack(2);
  Hear();
  EXPECT_EQ(KnownSources(), Ids({0, 5}));
  EXPECT_EQ(Code(2), -1);
  EXPECT_TRUE(kept_[1].empty());
}

TEST_F(Ended, ALaterRequestIsAnsweredThatTheAddedSourcesAreLost) {
  AddNodes(4);
  Open(0, 1);
  ASSERT_EQ(Add(1, {1}), 0);
  ASSERT_EQ(Add(2, {2}), 0);
  h_.Down(nodes_[0]);
  h_.Down(nodes_[1]);
  asked_[3].push_back(OpenRequest(1));
  Restart({2});
  h_.Advance(absl::Seconds(3));
  ASSERT_FALSE(UnderWay());
  h_.Clear();
  ComeBack(3);
  EXPECT_EQ(Code(3), Number(absl::StatusCode::kDataLoss));
  EXPECT_FALSE(UnderWay());
  h_.Clear();
  Open(3, 1);
  EXPECT_EQ(Code(3), -1) << "it may be asked for anew";
  EXPECT_TRUE(UnderWay());
}

TEST_F(Ended, WhoWasAwayWhenItFailedIsToldWhyThoughAnotherHasBegun) {
  for (const bool told_number : {true, false}) {
    SCOPED_TRACE(told_number);
    StartOver();
    AddNodes(4);
    v1::NodeMessage message = OpenRequest(1);
    message.mutable_reduce_request()->set_timeout_ms(500);
    Ask(0, message);
    if (!told_number) h_.Down(nodes_[0]);
    ASSERT_EQ(Add(1, {1}), 0);
    if (told_number) h_.Down(nodes_[0]);
    h_.Advance(absl::Milliseconds(500));
    ASSERT_FALSE(UnderWay());
    h_.Clear();
    message = OpenRequest(1);
    message.mutable_reduce_request()->set_timeout_ms(10'000);
    Ask(2, message);
    EXPECT_EQ(h_.Last(nodes_[2], Kind::kKeepReduction)->keep_reduction().timeout_ms(), 10'000u);
    h_.Clear();
    ComeBack(0);
    EXPECT_EQ(Code(0), Number(absl::StatusCode::kDeadlineExceeded));
    EXPECT_EQ(Code(2), -1);
    EXPECT_EQ(KnownSources(), Ids({0}));
  }
}

// Node 1 sent its request in time, but the shard gets the request after the deadline: the request
// begins another reduction.
TEST_F(Ended, AtItsDeadlineItIsOverForWhoWasNotHeardBefore) {
  AddNodes(2);
  v1::NodeMessage message = OpenRequest(1);
  message.mutable_reduce_request()->set_timeout_ms(500);
  Ask(0, message);
  asked_[1].push_back(OpenRequest(1));
  ASSERT_EQ(Add(0, {1}), 0);
  h_.Down(nodes_[0]);
  h_.Advance(absl::Milliseconds(500));
  ASSERT_FALSE(UnderWay());
  ComeBack(1);
  Hear();
  EXPECT_EQ(Code(1), -1);
  EXPECT_EQ(KnownSources(), Ids({0})) << "what was added belongs to the one that is over";
  ASSERT_EQ(Close(1), 0);
  ComeBack(0);
  EXPECT_EQ(Code(0), Number(absl::StatusCode::kDeadlineExceeded));
  EXPECT_EQ(KnownSources(), Ids({0}));
}

TEST_F(Ended, OneThatHadNoNumberWhenItEndedIsNotBroughtBackByWhoKnowsIt) {
  for (const bool deleted : {true, false}) {
    SCOPED_TRACE(deleted);
    StartOver();
    AddNodes(4);
    for (int i = 0; i < 3; ++i) Put(i, i);
    v1::NodeMessage message = Request(3);
    message.mutable_reduce_request()->set_timeout_ms(10'000);
    Ask(2, message);
    ASSERT_FALSE(kept_[0].empty());
    // The requesting node did not get the reduction's number, and the keeper is away.
    Restart({2, 3});
    ASSERT_TRUE(UnderWay());
    if (deleted) h_.Delete(nodes_[3], kTarget);
    h_.Advance(absl::Seconds(10));
    ASSERT_FALSE(UnderWay());
    h_.Clear();
    ComeBack(0);
    EXPECT_TRUE(Forgets(0));
    EXPECT_FALSE(UnderWay());
    Ask(3, Request(3));
    EXPECT_TRUE(UnderWay()) << "it may be asked for anew";
  }
}

// ---- folds

TEST_F(Ended, FoldsOfTheLaterOneContinueWhenTheShardRestarts) {
  for (const bool tombstone_first : {true, false}) {
    SCOPED_TRACE(tombstone_first);
    StartOver();
    AddNodes(5);
    std::vector<Generation> generations;
    for (int i = 0; i < 3; ++i) generations.push_back(Put(i, i));
    Ask(2, Request(3));
    const v1::Fold before = *FoldAt(0);
    h_.Delete(nodes_[3], kTarget);
    const Generation deleted =
        FromProto(h_.Last(nodes_[3], Kind::kDeleteReply)->delete_reply().generations(0));
    Hear();
    h_.Clear();
    Ask(2, Request(3));
    std::vector<v1::Fold> folds;
    for (int i = 0; i < 3; ++i) folds.push_back(*FoldAt(i));
    ASSERT_EQ(FromProto(folds[0].version()), FromProto(before.version())) << "of the same sources";
    h_.Clear();
    h_.RestartShard();
    const auto tombstone = [&] {
      h_.NewSession(nodes_[3], /*had_session=*/true);
      h_.RegisterTombstone(nodes_[3], kTarget, deleted);
      h_.RegisterEnd(nodes_[3]);
    };
    if (tombstone_first) tombstone();
    // This node folds for the deleted reduction, and has no message that it was deleted.
    h_.NewSession(nodes_[4], /*had_session=*/true);
    h_.RegisterCopy(nodes_[4], Source(0), generations[0], {.primary = false, .size = kSize});
    Send(4, Registered(before));
    h_.RegisterEnd(nodes_[4]);
    for (int i = 0; i < 3; ++i) RegisterWithFold(i, generations[i], folds[i]);
    if (!tombstone_first) tombstone();
    h_.Advance(absl::Seconds(3));
    for (int i = 0; i < 3; ++i) {
      ASSERT_TRUE(FoldAt(i).has_value()) << i;
      EXPECT_EQ(FromProto(FoldAt(i)->version()), FromProto(folds[i].version())) << i;
      EXPECT_EQ(FromProto(FoldAt(i)->begun()), FromProto(folds[i].begun())) << i;
      EXPECT_FALSE(Has(i, Kind::kFoldDrop)) << i;
    }
    EXPECT_TRUE(Has(4, Kind::kFoldDrop));
    EXPECT_FALSE(FoldAt(4).has_value());
    EXPECT_EQ(Code(2), -1);
  }
}

TEST_F(Ended, WhoFoldsKnowsWhichOneItIsWhenWhoAsksDoesNot) {
  AddNodes(3);
  std::vector<Generation> generations;
  for (int i = 0; i < 3; ++i) generations.push_back(Put(i, i));
  Reduce(2, 3);
  std::vector<v1::Fold> folds;
  for (int i = 0; i < 3; ++i) folds.push_back(*FoldAt(i));
  h_.Clear();
  h_.RestartShard();
  for (int i = 0; i < 3; ++i) RegisterWithFold(i, generations[i], folds[i]);
  Reduce(2, 3);
  h_.Advance(absl::Seconds(3));
  EXPECT_EQ(FromProto(FoldAt(2)->begun()), FromProto(folds[2].begun()));
}

// ---- deletes

TEST_F(Ended, GetsOfADeletedTargetWaitForTheNextReduction) {
  AddNodes(4);
  Reduce(0, 3);
  h_.Delete(nodes_[1], kTarget);
  Reduce(0, 3);
  h_.Want(nodes_[3], kTarget);
  EXPECT_EQ(h_.LastGone(nodes_[3]), std::nullopt);
  for (int i = 0; i < 3; ++i) Put(i, i);
  Announce(0, *FoldAt(0));
  EXPECT_EQ(h_.SenderOf(nodes_[3], kTarget), nodes_[0]);
  h_.Delete(nodes_[1], kTarget);
  EXPECT_EQ(h_.LastGone(nodes_[3]), v1::Gone::DELETED);
}

TEST_F(Ended, ATombstoneRefusesTheOneThatItEndedAndNoOther) {
  for (const bool tombstone_first : {true, false}) {
    SCOPED_TRACE(tombstone_first);
    StartOver();
    EndWhileItsKeeperIsAway();
    asked_.clear();
    OpenAnother();
    h_.Clear();
    h_.RestartShard();
    const auto tombstone = [&] {
      h_.NewSession(nodes_[3], /*had_session=*/true);
      h_.RegisterTombstone(nodes_[3], kTarget, deleted_);
      h_.RegisterEnd(nodes_[3]);
    };
    if (tombstone_first) tombstone();
    ComeBack(2);
    ComeBack(1);
    if (!tombstone_first) tombstone();
    h_.Want(nodes_[3], kTarget);
    h_.Advance(absl::Seconds(3));
    EXPECT_EQ(Code(2), -1) << Reply(2)->message();
    EXPECT_EQ(KnownSources(), Ids({0, 5}));
    EXPECT_EQ(h_.LastGone(nodes_[3]), std::nullopt);
    EXPECT_TRUE(Forgets(1));
  }
}

TEST_F(Ended, ADeletedOneStaysDeletedForARestartedShard) {
  for (const bool tombstone_first : {true, false}) {
    SCOPED_TRACE(tombstone_first);
    StartOver();
    EndWhileItsKeeperIsAway();
    h_.Clear();
    h_.RestartShard();
    const auto tombstone = [&] {
      h_.NewSession(nodes_[3], /*had_session=*/true);
      h_.RegisterTombstone(nodes_[3], kTarget, deleted_);
      h_.RegisterEnd(nodes_[3]);
    };
    if (tombstone_first) tombstone();
    ComeBack(1);
    if (!tombstone_first) tombstone();
    h_.Advance(absl::Seconds(3));
    EXPECT_FALSE(UnderWay());
    EXPECT_TRUE(Forgets(1));
    h_.Clear();
    Open(3, 1);
    EXPECT_EQ(Code(3), -1) << "and may be asked for anew";
  }
}

// ---- additions

TEST_F(Ended, ARepeatedAdditionSucceedsThoughItsReductionHasEnded) {
  AddNodes(3);
  for (int i = 0; i < 3; ++i) Put(i, i);
  Open(0, 1);
  v1::NodeMessage added = ExtendRequest({1, 2}, false);
  v1::NodeMessage closed = ExtendRequest({}, true);
  ASSERT_EQ(Extend(1, added), 0);
  ASSERT_EQ(Extend(1, closed), 0);
  const Generation g = MakeResult();
  ASSERT_FALSE(UnderWay());
  v1::NodeMessage other = ExtendRequest({7}, false);
  for (v1::NodeMessage* message : {&added, &closed, &other}) {
    EXPECT_EQ(Extend(1, *message), Number(absl::StatusCode::kNotFound)) << "the first time";
    message->mutable_extend_request()->set_again(true);
  }
  EXPECT_EQ(Extend(1, added), 0);
  EXPECT_EQ(Extend(1, closed), 0);
  EXPECT_EQ(Extend(1, other), Number(absl::StatusCode::kNotFound));
  // The same if its result is known.
  h_.Clear();
  h_.RestartShard();
  RegisterResult(0, g, root_);
  h_.Advance(absl::Seconds(3));
  h_.NewSession(nodes_[1], /*had_session=*/true);
  h_.RegisterEnd(nodes_[1]);
  EXPECT_EQ(Extend(1, added), 0);
  EXPECT_EQ(Extend(1, closed), 0);
  EXPECT_EQ(Extend(1, other), Number(absl::StatusCode::kNotFound));
}

TEST_F(Ended, AnAdditionToOneThatHasEndedIsNotMadeToTheNext) {
  AddNodes(3);
  Open(0, 1);
  ASSERT_EQ(Add(1, {1}), 0);
  v1::NodeMessage late = ExtendRequest({2}, false);
  *late.mutable_extend_request()->mutable_begun() =
      kept_[1][0].reduce_request().reduction().begun();
  late.mutable_extend_request()->set_again(true);
  h_.Delete(nodes_[2], kTarget);
  Hear();
  OpenAnother();
  EXPECT_EQ(Extend(1, late), Number(absl::StatusCode::kNotFound));
  EXPECT_EQ(KnownSources(), Ids({0, 5}));
}

// ---- results

TEST_F(Ended, AResultIsKnownByItsArgumentsAfterARestart) {
  AddNodes(3);
  for (int i = 0; i < 3; ++i) Put(i, i);
  const v1::NodeMessage request = Request(3);
  Send(2, request);
  const Generation g = MakeResult();
  h_.Clear();
  h_.RestartShard();
  RegisterResult(2, g, root_);
  h_.NewSession(nodes_[0], /*had_session=*/true);
  h_.RegisterEnd(nodes_[0]);
  h_.Advance(absl::Seconds(3));
  EXPECT_EQ(Answer(0, request).code(), 0);
  const auto differs = [&](const std::function<void(v1::Reduction&)>& change,
                           const std::string& what) {
    v1::NodeMessage other = request;
    change(*other.mutable_reduce_request()->mutable_reduction());
    const v1::ReduceReply reply = Answer(0, other);
    EXPECT_EQ(reply.code(), Number(absl::StatusCode::kAlreadyExists)) << what;
    EXPECT_THAT(reply.message(), HasSubstr(what));
  };
  differs([](v1::Reduction& r) { r.set_op(static_cast<uint32_t>(ReduceOp::kMax)); }, "op");
  differs([](v1::Reduction& r) { r.set_dtype(static_cast<uint32_t>(DType::kI32)); }, "dtype");
  differs(
      [](v1::Reduction& r) {
        r.set_dtype(kSeveralDTypes);
        r.add_runs()->set_end(64);
        r.add_runs()->set_end(100);
      },
      "dtype");
  differs([](v1::Reduction& r) { r.set_order(1); }, "order");
  differs([](v1::Reduction& r) { r.set_num_objects(2); }, "number of objects");
  differs([](v1::Reduction& r) { r.set_range_bytes(64); }, "range");
  differs([](v1::Reduction& r) { r.mutable_source_ids()->SwapElements(0, 1); }, "sources");
}

TEST_F(Ended, AnOpenOneWhoseResultIsLostDoesNotBeginWithoutItsAddedSources) {
  for (const bool told_number : {true, false}) {
    SCOPED_TRACE(told_number);
    StartOver();
    AddNodes(4);
    for (int i = 0; i < 3; ++i) Put(i, i);
    Open(3, 1);
    if (!told_number) h_.Down(nodes_[3]);
    ASSERT_EQ(Add(1, {1, 2}), 0);
    if (told_number) h_.Down(nodes_[3]);
    ASSERT_EQ(Close(1), 0);
    const int root = RootAt();
    MakeResult();
    ASSERT_FALSE(UnderWay());
    h_.Down(nodes_[root]);
    h_.Advance(absl::Seconds(3));
    h_.Clear();
    ComeBack(3);
    EXPECT_EQ(Code(3), Number(absl::StatusCode::kDataLoss));
    EXPECT_FALSE(UnderWay());
  }
}

TEST_F(Ended, AnOpenOnesResultIsKnownToWhoNamesSomeOfItsSources) {
  AddNodes(3);
  for (int i = 0; i < 3; ++i) Put(i, i);
  Open(0, 1);
  ASSERT_EQ(Extend(1, ExtendRequest({1, 2}, true)), 0);
  const Generation g = MakeResult();
  Restart({});
  RegisterResult(0, g, root_);
  for (const int sources : {1, 2, 3}) EXPECT_EQ(Answer(0, OpenRequest(sources)).code(), 0);
  EXPECT_THAT(Answer(0, OpenRequest(4)).message(), HasSubstr("sources"));
  v1::NodeMessage other = OpenRequest(1);
  other.mutable_reduce_request()->mutable_reduction()->set_op(
      static_cast<uint32_t>(ReduceOp::kMax));
  EXPECT_THAT(Answer(0, other).message(), HasSubstr("op"));
}

}  // namespace
}  // namespace phalanx::directory
