// Scopes: objects that are freed together, on every node, without a tombstone for each.
#include <string>

#include "gtest/gtest.h"
#include "src/common/testing/status_matchers.h"
#include "src/directory/core/directory_core.h"
#include "src/directory/core/validate.h"
#include "src/directory/testing/directory_core_harness.h"

namespace phalanx::directory {
namespace {

using testing::Harness;
using testing::Id;

const ObjectId x = Id("x");

class Scopes : public ::testing::Test {
 protected:
  explicit Scopes(bool learning = false) : h_(learning) {}

  Generation Create(const NodeKey& node, const Scope& scope, const ObjectId& id = x) {
    const Generation generation = h_.NewGeneration(node);
    v1::NodeMessage message;
    v1::AnnounceCreate& create = *message.mutable_announce_create();
    ToProto(id, create.mutable_object_id());
    ToProto(generation, create.mutable_generation());
    create.mutable_info()->set_size_bytes(100'000);
    create.mutable_info()->set_slices(1);
    SetScope(scope, create.mutable_info());
    create.set_complete(true);
    h_.Send(node, message).IgnoreError();
    return generation;
  }
  void Register(const NodeKey& node, const Generation& generation, const Scope& scope) {
    v1::NodeMessage message;
    v1::RegisterCopy& copy = *message.mutable_register_copy();
    ToProto(x, copy.mutable_object_id());
    ToProto(generation, copy.mutable_generation());
    copy.mutable_info()->set_size_bytes(100'000);
    copy.mutable_info()->set_slices(1);
    SetScope(scope, copy.mutable_info());
    copy.set_adopted(true);
    copy.set_complete(true);
    h_.Send(node, message).IgnoreError();
  }
  void RegisterScope(const NodeKey& node, const Scope& scope) {
    v1::NodeMessage message;
    SetScope(scope, message.mutable_register_scope());
    h_.Send(node, message).IgnoreError();
  }
  void End(const NodeKey& node, const Scope& scope, uint64_t request = 1) {
    v1::NodeMessage message;
    message.mutable_end_scope_request()->set_request_id(request);
    SetScope(scope, message.mutable_end_scope_request());
    h_.Send(node, message).IgnoreError();
  }
  void Confirm(const NodeKey& node, const Scope& scope) {
    v1::NodeMessage message;
    SetScope(scope, message.mutable_scope_confirm());
    h_.Send(node, message).IgnoreError();
  }
  int Replies(const NodeKey& node) { return h_.Count(node, v1::ShardMessage::kEndScopeReply); }
  int EndsSent(const NodeKey& node) { return h_.Count(node, v1::ShardMessage::kScopeEnded); }
  v1::GetStatusResponse Status() {
    v1::GetStatusResponse out;
    h_.core().FillStatus(h_.now(), &out);
    return out;
  }

  Harness h_;
};

TEST_F(Scopes, AnEndFreesTheObjectsOfTheNumberAndOfSmallerOnesAndLeavesNoTombstone) {
  const NodeKey a = h_.Up("a");
  const NodeKey b = h_.Up("b");
  for (int i = 0; i < 10; ++i) {
    Create(a, {"job", static_cast<uint64_t>(i)}, Id(std::to_string(i)));
  }
  End(b, {"job", 4});
  for (int i = 0; i < 10; ++i) EXPECT_EQ(h_.Known(Id(std::to_string(i))), i > 4) << i;
  EXPECT_EQ(Status().tombstones(), 0u);
  EXPECT_EQ(Status().counters().at("scope_objects"), 5u);
  EXPECT_EQ(Status().counters().at("ended_scopes"), 1u);
}

TEST_F(Scopes, TheEndIsAnsweredWhenEveryNodeHasConfirmedOrIsDown) {
  const NodeKey a = h_.Up("a");
  const NodeKey b = h_.Up("b");
  const NodeKey c = h_.Up("c");
  End(a, {"job", 4});
  EXPECT_EQ(EndsSent(a) + EndsSent(b) + EndsSent(c), 3);
  Confirm(a, {"job", 4});
  Confirm(b, {"job", 4});
  EXPECT_EQ(Replies(a), 0);
  h_.Down(c);
  EXPECT_EQ(Replies(a), 1);
}

TEST_F(Scopes, ANewSessionIsToldAgainWhatTheOldOneDidNotConfirm) {
  const NodeKey a = h_.Up("a");
  const NodeKey b = h_.Up("b");
  End(a, {"job", 4});
  Confirm(a, {"job", 4});
  h_.NewSession(b);
  h_.Clear();
  h_.RegisterEnd(b);
  EXPECT_EQ(EndsSent(b), 1);
  Confirm(b, {"job", 4});
  EXPECT_EQ(Replies(a), 1);
}

TEST_F(Scopes, ALatePutIsRefusedAndALaterNumberIsNot) {
  const NodeKey a = h_.Up("a");
  End(a, {"job", 4});
  h_.Clear();
  Create(a, {"job", 3});
  EXPECT_FALSE(h_.Known(x));
  EXPECT_EQ(EndsSent(a), 1);
  Create(a, {"job", 5});
  EXPECT_TRUE(h_.Known(x));
}

TEST_F(Scopes, ANodeThatWaitsForAnObjectOfTheScopeIsTold) {
  const NodeKey a = h_.Up("a");
  const NodeKey b = h_.Up("b");
  Create(a, {"job", 4});
  h_.Want(b, x);
  End(a, {"job", 9});
  EXPECT_EQ(h_.LastGone(b), v1::Gone::REFUSED);
  const v1::ShardMessage gone = *h_.Last(b, v1::ShardMessage::kGone);
  EXPECT_EQ(gone.gone().code(), static_cast<int>(absl::StatusCode::kNotFound));
  EXPECT_EQ(gone.gone().reason(), "scope \"job\" 4 has ended");
}

TEST_F(Scopes, AWantThatNamesAnEndedScopeIsToldAndStays) {
  const NodeKey a = h_.Up("a");
  const NodeKey b = h_.Up("b");
  End(a, {"job", 4});
  h_.Clear();
  v1::NodeMessage message;
  ToProto(x, message.mutable_want()->mutable_object_id());
  message.mutable_want()->set_number(1);
  SetScope({"job", 4}, message.mutable_want());
  PHALANX_EXPECT_OK(h_.Send(b, message));
  EXPECT_EQ(EndsSent(b), 1);
  // A Get on that node that names no scope still waits.
  EXPECT_EQ(h_.Describe(x).summary().waiting(), 1u);
  h_.Unwant(b, x);
}

TEST_F(Scopes, AMalformedScopeIsRefusedAndChangesNothing) {
  const NodeKey a = h_.Up("a");
  End(a, {std::string(256, 'x'), 4});
  EXPECT_EQ(h_.status().code(), absl::StatusCode::kInvalidArgument);
  v1::NodeMessage message;
  message.mutable_end_scope_request()->set_request_id(1);
  EXPECT_EQ(h_.Send(a, message).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Status().counters().at("ended_scopes"), 0u);
}

// The node heard of the end later than the shard, and registers it when the shard has forgotten it.
TEST_F(Scopes, AnEndThatTheShardHasForgottenDoesNotComeBackWithANode) {
  const NodeKey a = h_.Up("a");
  const NodeKey b = h_.Up("b");
  End(b, {"job", 4});
  h_.Advance(absl::Minutes(11));
  h_.NewSession(a, /*had_session=*/true);
  RegisterScope(a, {"job", 4});
  h_.RegisterEnd(a);
  Create(b, {"job", 4});
  EXPECT_TRUE(h_.Known(x));
  EXPECT_EQ(Status().counters().at("ended_scopes"), 0u);
}

TEST_F(Scopes, AnEndIsSentOnceForAllObjectsThatANodeRegistersAndForEachLatePut) {
  const NodeKey a = h_.Up("a");
  const NodeKey b = h_.Up("b");
  End(b, {"job", 4});
  Confirm(a, {"job", 4});
  h_.NewSession(a, /*had_session=*/true);
  h_.Clear();
  for (int i = 0; i < 100; ++i) Register(a, h_.NewGeneration(a), {"job", 3});
  EXPECT_EQ(EndsSent(a), 1);
  Register(a, h_.NewGeneration(a), {"job", 4});
  EXPECT_EQ(EndsSent(a), 1) << "the message names the greatest number";
  h_.RegisterEnd(a);
  for (int i = 0; i < 2; ++i) Create(a, {"job", 4});
  EXPECT_EQ(EndsSent(a), 3);
  h_.NewSession(a, /*had_session=*/true);
  h_.Clear();
  Register(a, h_.NewGeneration(a), {"job", 3});
  EXPECT_EQ(EndsSent(a), 1) << "the last session's message can be lost";
}

// A program that numbers its rounds: nothing grows with them.
TEST_F(Scopes, AHundredThousandObjectsOfEndedScopesLeaveOneRecord) {
  const NodeKey a = h_.Up("a");
  h_.CheckEvery(10'000);
  for (uint64_t round = 0; round < 1000; ++round) {
    for (int i = 0; i < 100; ++i) {
      Create(a, {"job", round}, Id(std::to_string(round) + "/" + std::to_string(i)));
    }
    End(a, {"job", round}, round + 1);
    Confirm(a, {"job", round});
    EXPECT_EQ(Replies(a), 1);
    h_.Clear();
  }
  EXPECT_EQ(Status().objects(), 0u);
  EXPECT_EQ(Status().tombstones(), 0u);
  EXPECT_EQ(Status().counters().at("ended_scopes"), 1u);
  EXPECT_EQ(Status().counters().at("freed_by_scope"), 100'000u);
}

class RestartedScopes : public Scopes {
 protected:
  RestartedScopes() : Scopes(/*learning=*/true) {}
};

TEST_F(RestartedScopes, AShardLearnsAnEndFromANodeBeforeOrAfterTheCopies) {
  for (const bool before : {true, false}) {
    const NodeKey a = h_.Up(before ? "a" : "c");
    const NodeKey b = h_.Up(before ? "b" : "d");
    h_.NewSession(a, /*had_session=*/true);
    h_.NewSession(b, /*had_session=*/true);
    const Scope scope{before ? "before" : "after", 4};
    if (before) RegisterScope(a, scope);
    Register(b, h_.NewGeneration(b), scope);
    if (!before) RegisterScope(a, scope);
    EXPECT_GE(EndsSent(b), 1);
    EXPECT_FALSE(h_.Known(x));
    h_.RegisterEnd(a);
    h_.RegisterEnd(b);
  }
}

TEST_F(RestartedScopes, AnEndIsAnsweredWhenTheNodesThatRegisterLaterHaveConfirmedToo) {
  const NodeKey a = h_.Up("a");
  End(a, {"job", 4});
  EXPECT_EQ(EndsSent(a), 1);
  Confirm(a, {"job", 4});
  EXPECT_EQ(Replies(a), 0);
  const NodeKey b = h_.Up("b");
  h_.Advance(absl::Seconds(3));
  EXPECT_EQ(EndsSent(b), 1);
  Confirm(a, {"job", 4});
  EXPECT_EQ(Replies(a), 0);
  Confirm(b, {"job", 4});
  EXPECT_EQ(Replies(a), 1);
}

TEST_F(RestartedScopes, ARequestOfAnEarlierSessionIsNotAnswered) {
  const NodeKey a = h_.Up("a");
  End(a, {"job", 4}, 1);
  h_.NewSession(a);
  h_.RegisterEnd(a);
  End(a, {"job", 4}, 2);
  h_.Advance(absl::Seconds(3));
  Confirm(a, {"job", 4});
  EXPECT_EQ(Replies(a), 1);
  EXPECT_EQ(h_.Last(a, v1::ShardMessage::kEndScopeReply)->end_scope_reply().request_id(), 2u);
}

TEST_F(RestartedScopes, AnEndThatANodeRegistersLateCountsWhileTheEarlierLifeWouldRememberIt) {
  const NodeKey a = h_.Up("a");
  h_.Advance(absl::Minutes(9));
  h_.NewSession(a, /*had_session=*/true);
  RegisterScope(a, {"job", 4});
  h_.RegisterEnd(a);
  EXPECT_EQ(Status().counters().at("ended_scopes"), 1u);
  h_.Advance(absl::Minutes(10));
  h_.NewSession(a, /*had_session=*/true);
  RegisterScope(a, {"job", 4});
  h_.RegisterEnd(a);
  EXPECT_EQ(Status().counters().at("ended_scopes"), 0u);
}

}  // namespace
}  // namespace phalanx::directory
