// Open reductions: additions, requests that join, and restarts of the shard while nodes reconnect
// in any order, or not at all.
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "src/directory/core/directory_core.h"
#include "src/directory/core/validate.h"
#include "src/directory/reductions/testing/directory_core_reduce_harness.h"
#include "src/directory/testing/directory_core_harness.h"

namespace phalanx::directory {
namespace {

using ::testing::AllOf;
using testing::Bytes;
using ::testing::HasSubstr;
using testing::kTarget;
using ::testing::Not;

using OpenReduction = testing::KeepingTest;

TEST_F(OpenReduction, WhatWasAddedAndThatItWasClosedOutlivesTheShard) {
  AddNodes(2);
  Open(0, 1);
  ASSERT_EQ(Add(1, {1, 2}), 0);
  ASSERT_EQ(Add(0, {3}), 0);
  ASSERT_EQ(Close(1), 0);
  Restart({0, 1});
  EXPECT_EQ(KnownSources(), Ids({0, 1, 2, 3}));
  EXPECT_TRUE(h_.Describe(kTarget).has_reduction());
  for (int i = 0; i < 4; ++i) Put(0, i);
  EXPECT_GE(RootAt(), 0) << "it is closed";
}

TEST_F(OpenReduction, ARequesterAloneRestoresAllAddedSources) {
  AddNodes(3);
  Open(0, 1);
  ASSERT_EQ(Add(1, {1}), 0);
  ASSERT_EQ(Add(2, {2}), 0);
  ASSERT_EQ(Close(2), 0);
  Restart({0});
  EXPECT_EQ(KnownSources(), Ids({0, 1, 2}));
  for (int i = 0; i < 3; ++i) Put(0, i);
  EXPECT_GE(RootAt(), 0);
}

TEST_F(OpenReduction, TheNodesThatAddedSourcesRestoreThemInAnyOrder) {
  AddNodes(4);
  Open(0, 0);
  ASSERT_EQ(Add(1, {1}), 0);
  ASSERT_EQ(Add(2, {2}), 0);
  ASSERT_EQ(Add(1, {3}), 0);
  ASSERT_EQ(Close(3), 0);
  Restart({3, 2, 1});
  EXPECT_EQ(KnownSources(), Ids({1, 2, 3})) << "in the order in which they were added";
  for (int i = 1; i < 4; ++i) Put(1, i);
  EXPECT_GE(RootAt(), 0);
}

TEST_F(OpenReduction, EndsWhenAPartOfTheListIsKnownToNobodyAnyMore) {
  AddNodes(4);
  Open(0, 1);
  ASSERT_EQ(Add(1, {1}), 0);
  ASSERT_EQ(Add(2, {2}), 0);
  // A node that joins late knows its own request, and gets the rest from the shard.
  h_.Down(nodes_[0]);
  asked_[3].push_back(OpenRequest(1));
  Restart({2, 3});
  ASSERT_TRUE(Reply(3).has_value());
  EXPECT_EQ(Code(3), Number(absl::StatusCode::kDataLoss));
  EXPECT_THAT(Reply(3)->message(), HasSubstr(kTarget.hex()));
}

TEST_F(OpenReduction, AJoiningRequesterGetsTheSourcesAddedBefore) {
  AddNodes(3);
  Open(0, 1);
  ASSERT_EQ(Add(1, {1, 2}), 0);
  Open(2, 1);
  h_.Down(nodes_[0]);
  h_.Down(nodes_[1]);
  Restart({2});
  EXPECT_EQ(KnownSources(), Ids({0, 1, 2}));
}

TEST_F(OpenReduction, AnExtensionWaitsForTheEndOfLearning) {
  AddNodes(2);
  Open(0, 1);
  ASSERT_EQ(Add(0, {1}), 0);
  h_.Clear();
  h_.RestartShard();
  h_.NewSession(nodes_[1], /*had_session=*/true);
  h_.RegisterEnd(nodes_[1]);
  EXPECT_EQ(Add(1, {2}), -1);
  ComeBack(0);
  EXPECT_EQ(Add(1, {3}), -1);
  h_.Advance(absl::Seconds(3));
  EXPECT_EQ(h_.Count(nodes_[1], Kind::kExtendReply), 2);
  EXPECT_EQ(KnownSources(), Ids({0, 1, 2, 3}));
}

TEST_F(OpenReduction, AnExtensionWhoseAnswerDiedWithTheShardIsCarriedOutOnce) {
  AddNodes(2);
  Open(0, 1);
  v1::NodeMessage message = ExtendRequest({1}, true);
  ASSERT_EQ(Extend(1, message), 0);
  Restart({0, 1});
  message.mutable_extend_request()->set_again(true);
  EXPECT_EQ(Extend(1, message), 0);
  EXPECT_EQ(KnownSources(), Ids({0, 1}));
  v1::NodeMessage other = ExtendRequest({1}, false);
  EXPECT_NE(Extend(1, other), 0) << "it comes twice";
}

TEST_F(OpenReduction, ARequestWithMoreSourcesAddsThemAndOneWithOthersIsRefused) {
  AddNodes(3);
  Open(0, 1);
  Open(1, 3);
  EXPECT_EQ(KnownSources(), Ids({0, 1, 2}));
  v1::NodeMessage other = OpenRequest(1);
  other.mutable_reduce_request()->mutable_reduction()->add_source_ids(Bytes(Source(7)));
  Send(2, other);
  EXPECT_EQ(Code(2), Number(absl::StatusCode::kAlreadyExists));
  ASSERT_EQ(Close(0), 0);
  h_.Clear();
  Send(2, OpenRequest(4));
  EXPECT_EQ(Code(2), Number(absl::StatusCode::kAlreadyExists)) << "it is closed";
  h_.Clear();
  Send(2, OpenRequest(2));
  EXPECT_FALSE(Reply(2).has_value());
}

TEST_F(OpenReduction, WhoKeepsAPartThatCannotBePutBackEndsIt) {
  AddNodes(3);
  Open(0, 1);
  ASSERT_EQ(Add(1, {1}), 0);
  h_.Clear();
  h_.RestartShard();
  h_.NewSession(nodes_[2], /*had_session=*/true);
  h_.RegisterEnd(nodes_[2]);
  h_.Advance(absl::Seconds(3));
  // No node that knew the list reconnected in time, and a client began the reduction again.
  asked_.clear();
  Open(2, 1);
  ASSERT_EQ(Add(2, {5}), 0);
  ComeBack(1);
  EXPECT_EQ(Code(2), Number(absl::StatusCode::kDataLoss));
}

TEST_F(OpenReduction, TheShardWaitsALeaseForLateParts) {
  AddNodes(4);
  Open(0, 1);
  ASSERT_EQ(Add(1, {1}), 0);
  ASSERT_EQ(Add(2, {2}), 0);
  ASSERT_EQ(Close(3), 0);
  kept_[0].clear();
  Restart({});
  for (const int node : {3, 2}) ComeBack(node);
  EXPECT_NE(Add(2, {5}), 0);
  h_.Advance(absl::Seconds(1));
  for (const int node : {1, 0}) ComeBack(node);
  EXPECT_EQ(KnownSources(), Ids({0, 1, 2}));
  EXPECT_FALSE(Reply(0).has_value());
  for (int i = 0; i < 3; ++i) Put(0, i);
  EXPECT_GE(RootAt(), 0);
}

TEST_F(OpenReduction, EveryNodeForgetsItWhenItEnds) {
  AddNodes(3);
  Open(0, 1);
  ASSERT_EQ(Add(1, {1}), 0);
  ASSERT_EQ(Add(2, {2}), 0);
  EXPECT_EQ(kept_[0].size(), 2u) << "who asked";
  EXPECT_EQ(kept_[1].size(), 1u) << "who added keeps that alone";
  h_.Delete(nodes_[0], kTarget);
  Hear();
  for (size_t i = 0; i < 3; ++i) EXPECT_TRUE(kept_[i].empty()) << i;
}

TEST_F(OpenReduction, EveryNodeThatHoldsItOpenHearsOfItsEnd) {
  // More nodes than are sent each extension.
  AddNodes(8);
  for (int i = 0; i < 8; ++i) Open(i, 1);
  h_.Clear();
  h_.Delete(nodes_[0], kTarget);
  for (int i = 0; i < 8; ++i) {
    const auto forget = h_.Last(nodes_[i], Kind::kKeepReduction);
    ASSERT_TRUE(forget.has_value()) << i;
    EXPECT_TRUE(forget->keep_reduction().forget()) << i;
  }
}

TEST_F(OpenReduction, ARepeatedAdditionIsKeptLikeTheFirst) {
  AddNodes(2);
  Open(0, 1);
  v1::NodeMessage message = ExtendRequest({1}, false);
  ASSERT_EQ(Extend(1, message), 0);
  // Both messages of the shard are lost with the session.
  kept_[1].clear();
  message.mutable_extend_request()->set_again(true);
  ASSERT_EQ(Extend(1, message), 0);
  h_.Down(nodes_[0]);
  Restart({1});
  EXPECT_EQ(KnownSources(), Ids({0, 1}));
}

TEST_F(OpenReduction, ANodeThatRepeatsAnAdditionHearsThatTheReductionHasEnded) {
  AddNodes(2);
  Open(0, 1);
  v1::NodeMessage message = ExtendRequest({1}, false);
  ASSERT_EQ(Extend(1, message), 0);
  h_.Delete(nodes_[0], kTarget);
  message.mutable_extend_request()->set_again(true);
  ASSERT_EQ(Extend(1, message), 0);
  const std::vector<v1::ShardMessage>& received = h_.Received(nodes_[1]);
  ASSERT_EQ(received.size(), 2u);
  EXPECT_TRUE(received[0].has_extend_reply());
  EXPECT_TRUE(received[1].keep_reduction().forget());
}

// Node 2 adds what node 1 has added. Its message is lost, and repeated after the last client that
// the shard knew has ended. The addition would be acknowledged, but be in no result.
TEST_F(OpenReduction, ARepeatedAdditionToOneThatEndedWithAnErrorIsRefused) {
  AddNodes(3);
  Open(0, 1);
  const v1::NodeMessage first = ExtendRequest({1}, false);
  ASSERT_EQ(Extend(1, first), 0);
  EndClients(0);
  EndClients(1);
  ASSERT_FALSE(UnderWay());
  v1::NodeMessage repeated = first;
  repeated.mutable_extend_request()->set_again(true);
  EXPECT_EQ(Extend(2, repeated), Number(absl::StatusCode::kNotFound));
  EXPECT_THAT(h_.Last(nodes_[2], Kind::kExtendReply)->extend_reply().message(),
              HasSubstr("the last client"));
}

// Nothing is folded before the close, so what exists then counts. (A reduction that named a deleted
// source ended at its close, and with it acknowledged additions, although the source was there.)
TEST_F(OpenReduction, ASourceThatIsPutAgainBeforeTheCloseIsInTheResult) {
  AddNodes(2);
  Put(0, 0);
  h_.Delete(nodes_[0], Source(0));
  Open(0, 1);
  ASSERT_EQ(Add(1, {1}), 0);
  Put(1, 1);
  h_.Delete(nodes_[1], Source(1));
  Put(1, 0);
  Put(0, 1);
  ASSERT_EQ(Close(1), 0);
  EXPECT_FALSE(Reply(0).has_value()) << Reply(0)->message();
  EXPECT_GE(RootAt(), 0);
}

TEST_F(OpenReduction, ASourceThatIsNotPutAgainBeforeTheCloseEndsIt) {
  AddNodes(2);
  Put(0, 0);
  h_.Delete(nodes_[0], Source(0));
  Open(0, 2);
  Put(1, 1);
  h_.Delete(nodes_[1], Source(1));
  Put(1, 0);
  ASSERT_EQ(Close(1), 0);
  EXPECT_EQ(Code(0), Number(absl::StatusCode::kNotFound));
  EXPECT_THAT(Reply(0)->message(), HasSubstr(Source(1).hex()));
  EXPECT_THAT(Reply(0)->message(), Not(HasSubstr(Source(0).hex())));
}

// The shard refuses a reader when the reduction ends. The refusal crosses the reader's next Want,
// which waits for the next reduction.
TEST_F(OpenReduction, ARefusalNamesTheWantThatHasEnded) {
  AddNodes(2);
  Open(0, 1);
  h_.Want(nodes_[1], kTarget);
  EndClients(0);
  const auto want = [this] { return h_.Last(nodes_[1], Kind::kGone)->gone().want(); };
  EXPECT_EQ(want(), 1u);
  Open(0, 1);
  h_.Want(nodes_[1], kTarget);
  EndClients(0);
  EXPECT_EQ(want(), 2u);
}

TEST_F(OpenReduction, AtItsDeadlineItSaysWhetherItWasClosed) {
  AddNodes(1);
  v1::NodeMessage message = OpenRequest(1);
  message.mutable_reduce_request()->set_timeout_ms(500);
  Send(0, message);
  h_.Advance(absl::Milliseconds(500));
  EXPECT_THAT(Reply(0)->message(), HasSubstr("not closed"));
  h_.Clear();
  Send(0, message);
  ASSERT_EQ(Extend(0, ExtendRequest({}, true)), 0);
  h_.Advance(absl::Milliseconds(500));
  EXPECT_THAT(Reply(0)->message(), HasSubstr("missing: "));
}

TEST_F(OpenReduction, ADeadlineThatPassesWhileNodesRegisterGivesWayToALaterOne) {
  AddNodes(2);
  v1::NodeMessage hasty = OpenRequest(1);
  hasty.mutable_reduce_request()->set_timeout_ms(500);
  Ask(0, hasty);
  Ask(1, OpenRequest(1));
  ASSERT_EQ(Add(1, {1}), 0);
  // What node 0 keeps would be registered without its deadline here.
  kept_[0].clear();
  h_.RestartShard();
  h_.Clear();
  ComeBack(0);
  h_.Advance(absl::Milliseconds(600));
  ComeBack(1);
  h_.Advance(absl::Seconds(3));
  EXPECT_EQ(Code(1), -1);
  EXPECT_EQ(KnownSources(), Ids({0, 1}));
}

TEST_F(OpenReduction, ADeadlineThatPassesWhileNodesRegisterEndsItAfterwards) {
  AddNodes(1);
  v1::NodeMessage hasty = OpenRequest(1);
  hasty.mutable_reduce_request()->set_timeout_ms(500);
  Ask(0, hasty);
  h_.RestartShard();
  h_.Clear();
  ComeBack(0);
  h_.Advance(absl::Milliseconds(1900));
  EXPECT_TRUE(UnderWay());
  h_.Advance(absl::Milliseconds(100));
  EXPECT_EQ(Code(0), Number(absl::StatusCode::kDeadlineExceeded));
}

TEST_F(OpenReduction, EndsWithItsLastClient) {
  AddNodes(4);
  Open(0, 1);
  ASSERT_EQ(Add(1, {1}), 0);
  h_.Want(nodes_[2], kTarget);
  EndClients(0);
  EXPECT_TRUE(UnderWay()) << "a client of n1 added to it, and can close it";
  EndClients(1);
  EXPECT_FALSE(UnderWay());
  ASSERT_TRUE(Reply(0).has_value());
  EXPECT_EQ(Code(0), Number(absl::StatusCode::kCancelled));
  EXPECT_THAT(Reply(0)->message(),
              AllOf(HasSubstr(kTarget.hex()), HasSubstr("node n0"), HasSubstr("open it again")));
  // Readers get the same error, those that come later too.
  h_.Want(nodes_[3], kTarget);
  for (const int reader : {2, 3}) {
    const auto gone = h_.Last(nodes_[reader], Kind::kGone);
    ASSERT_TRUE(gone.has_value()) << reader;
    EXPECT_EQ(gone->gone().kind(), v1::Gone::REFUSED);
    EXPECT_EQ(gone->gone().code(), Number(absl::StatusCode::kCancelled));
    EXPECT_EQ(gone->gone().reason(), Reply(0)->message());
  }
  EXPECT_EQ(Add(1, {2}), Number(absl::StatusCode::kNotFound));
  const auto late = h_.Last(nodes_[1], Kind::kExtendReply);
  EXPECT_THAT(late->extend_reply().message(), HasSubstr("the last client"));
}

TEST_F(OpenReduction, CanBeOpenedAgainAfterItsClientsEnded) {
  AddNodes(2);
  Open(0, 1);
  EndClients(0);
  h_.Clear();
  Open(1, 1);
  EXPECT_TRUE(UnderWay());
  // A reader waits for this one.
  h_.Want(nodes_[0], kTarget);
  EXPECT_FALSE(Has(0, Kind::kGone));
  ASSERT_EQ(Close(1), 0);
  Put(0, 0);
  EXPECT_GE(RootAt(), 0);
}

TEST_F(OpenReduction, ContinuesWithoutClientsOnceItIsClosed) {
  AddNodes(2);
  Open(0, 1);
  ASSERT_EQ(Close(1), 0);
  EndClients(0);
  EXPECT_TRUE(UnderWay());
  Put(1, 0);
  EXPECT_GE(RootAt(), 0);
}

TEST_F(OpenReduction, OfADeadNodeEndsAfterALease) {
  AddNodes(2);
  Open(0, 1);
  h_.Down(nodes_[0]);
  h_.Advance(absl::Milliseconds(1900));
  EXPECT_TRUE(UnderWay()) << "the node can come back with its clients";
  h_.Advance(absl::Milliseconds(200));
  EXPECT_FALSE(UnderWay());
}

TEST_F(OpenReduction, ContinuesIfItsNodeIsBackWithinALease) {
  AddNodes(2);
  Open(0, 1);
  h_.Down(nodes_[0]);
  h_.Advance(absl::Seconds(1));
  ComeBack(0);
  h_.Advance(absl::Seconds(5));
  EXPECT_TRUE(UnderWay());
  EndClients(0);
  EXPECT_FALSE(UnderWay());
}

TEST_F(OpenReduction, EndsIfItsClientEndsWhileTheShardRestarts) {
  AddNodes(2);
  Open(0, 1);
  ASSERT_EQ(Add(1, {1}), 0);
  // Both nodes keep the description, and neither has a client any more.
  holding_open_.clear();
  asked_.clear();
  Restart({0, 1});
  EXPECT_FALSE(UnderWay());
}

TEST_F(OpenReduction, IsClosedByARequestThatWaitedForTheEndOfLearning) {
  AddNodes(2);
  Open(0, 1);
  holding_open_.clear();
  h_.Clear();
  h_.RestartShard();
  for (const int node : {0, 1}) ComeBack(node);
  EXPECT_EQ(Close(1), -1) << "the shard still learns";
  h_.Advance(absl::Seconds(3));
  EXPECT_TRUE(UnderWay());
  Put(1, 0);
  EXPECT_GE(RootAt(), 0);
}

TEST_F(OpenReduction, FoldsOfAClosedOneGoOnWithTheSameVersions) {
  AddNodes(4);
  std::vector<Generation> generations;
  for (int i = 0; i < 3; ++i) generations.push_back(Put(i, i));
  Open(3, 1);
  ASSERT_EQ(Add(0, {1, 2}), 0);
  ASSERT_EQ(Close(0), 0);
  std::vector<v1::Fold> folds;
  for (int i = 0; i < 3; ++i) folds.push_back(*FoldAt(i));
  h_.Clear();
  h_.RestartShard();
  for (int i = 0; i < 3; ++i) {
    h_.NewSession(nodes_[i], /*had_session=*/true);
    h_.RegisterCopy(nodes_[i], Source(i), generations[i], {.size = kSize});
    Send(i, Registered(folds[i]));
    h_.RegisterEnd(nodes_[i]);
  }
  ComeBack(3);
  h_.Advance(absl::Seconds(3));
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(FoldAt(i).has_value()) << i;
    EXPECT_EQ(FromProto(FoldAt(i)->version()), FromProto(folds[i].version())) << i;
  }
}

}  // namespace
}  // namespace phalanx::directory
