// A restarted shard that learns of several generations of one id, and of Deletes, in every order in
// which its nodes reconnect. `deleted` is a generation that a Delete removed; one holder, `late`,
// has no message of that Delete.
#include "gtest/gtest.h"
#include "src/directory/core/directory_core.h"
#include "src/directory/core/validate.h"
#include "src/directory/testing/directory_core_harness.h"

namespace phalanx::directory {
namespace {

using testing::Harness;
using testing::Id;

const ObjectId x = Id("x");

class RestartedShard : public ::testing::Test {
 protected:
  RestartedShard() {
    h_.NewSession(late_, true);
    h_.RegisterCopy(late_, x, deleted_, {.sender = {}});
    h_.RegisterEnd(late_);
  }

  void Register(const NodeKey& node, const Harness::Copy& copy) {
    h_.NewSession(node, true);
    h_.RegisterCopy(node, x, Put(node), copy);
    h_.RegisterEnd(node);
  }
  // Of another node, which knows of the Delete.
  void RegisterTombstone() {
    h_.NewSession(other_, true);
    h_.RegisterTombstone(other_, x, deleted_);
    h_.RegisterEnd(other_);
  }
  // The generation that was put after the Delete.
  static Generation Put(const NodeKey& node) { return Generation{node, 99}; }
  int Answers(v1::ShardMessage::KindCase kind) { return h_.Count(asks_, kind); }

  Harness h_{/*learning=*/true};
  const NodeKey late_ = h_.Up("late");
  const NodeKey holder_ = h_.Up("holder");
  const NodeKey other_ = h_.Up("other");
  const NodeKey asks_ = h_.Up("asks");
  const Generation deleted_{late_, 9};
};

TEST_F(RestartedShard, AWaitingNodeGetsTheGenerationThatTheTombstoneSpares) {
  Register(holder_, {.sender = {}});
  h_.Connected(late_, false);
  h_.Want(asks_, x);
  ASSERT_EQ(Answers(v1::ShardMessage::kAssign), 0);
  RegisterTombstone();
  EXPECT_EQ(h_.LastGone(asks_), std::nullopt);
  EXPECT_EQ(h_.SenderOf(asks_, x), holder_);
}

TEST_F(RestartedShard, AReceiverOfTheDeletedGenerationGetsTheSparedOne) {
  Register(holder_, {.sender = {}});
  h_.Want(asks_, x);
  ASSERT_EQ(h_.SenderOf(asks_, x), late_);
  RegisterTombstone();
  EXPECT_EQ(h_.LastGone(asks_), v1::Gone::VOID) << "its Get began after that Delete, maybe";
  EXPECT_EQ(h_.SenderOf(asks_, x), holder_);
  EXPECT_EQ(h_.LastAssign(asks_, x)->generation, Put(holder_));
}

TEST_F(RestartedShard, AWaitingNodeGetsTheGenerationRegisteredAfterTheTombstone) {
  h_.Want(asks_, x);
  RegisterTombstone();
  EXPECT_NE(h_.LastGone(asks_), v1::Gone::DELETED) << "it may have been put again";
  Register(holder_, {.sender = {}});
  EXPECT_EQ(h_.SenderOf(asks_, x), holder_);
}

TEST_F(RestartedShard, AWaitingNodeGetsDeletedOnceAllNodesHaveRegistered) {
  h_.Want(asks_, x);
  RegisterTombstone();
  h_.Advance(absl::Seconds(2));
  EXPECT_EQ(h_.LastGone(asks_), v1::Gone::DELETED);
  EXPECT_EQ(h_.Describe(x).summary().waiting(), 0u);
}

TEST_F(RestartedShard, ACompleteCopyOfADeletedGenerationIsDropped) {
  h_.Want(asks_, x);
  h_.Finish(asks_, x);
  Register(holder_, {.sender = {}});
  RegisterTombstone();
  EXPECT_EQ(h_.LastGone(asks_), v1::Gone::DELETED);
  EXPECT_EQ(h_.LastGone(late_), v1::Gone::DELETED);
  EXPECT_EQ(h_.Describe(x).summary().complete_copies(), 1u);
}

TEST_F(RestartedShard, AStandbyGenerationIsNotReportedAsDeleted) {
  Register(holder_, {.adopted = false, .sender = {}});
  RegisterTombstone();
  h_.Query(asks_, x, 1);
  h_.Delete(asks_, x, 2);
  EXPECT_EQ(Answers(v1::ShardMessage::kQueryReply), 0);
  EXPECT_EQ(Answers(v1::ShardMessage::kDeleteReply), 0);
  h_.Advance(absl::Seconds(2));
  EXPECT_TRUE(h_.Last(asks_, v1::ShardMessage::kQueryReply)->query_reply().complete());
  EXPECT_EQ(h_.LastGone(holder_), v1::Gone::DELETED);
  h_.Confirm(holder_, x, Put(holder_));
  h_.Confirm(late_, x, deleted_);
  const auto reply = h_.Last(asks_, v1::ShardMessage::kDeleteReply);
  ASSERT_TRUE(reply.has_value());
  EXPECT_EQ(FromProto(reply->delete_reply().generations(0)), Put(holder_));
}

TEST_F(RestartedShard, ATombstoneAloneDoesNotAnswerAnEarlierRequest) {
  h_.Down(late_);
  h_.Query(asks_, x, 1);
  h_.Delete(asks_, x, 2);
  RegisterTombstone();
  EXPECT_EQ(Answers(v1::ShardMessage::kQueryReply), 0);
  EXPECT_EQ(Answers(v1::ShardMessage::kDeleteReply), 0);
  Register(holder_, {.sender = {}});
  EXPECT_TRUE(h_.Last(asks_, v1::ShardMessage::kQueryReply)->query_reply().complete());
  EXPECT_EQ(h_.LastGone(holder_), v1::Gone::DELETED);
}

TEST_F(RestartedShard, ADeletedIdIsReportedOnceAllNodesHaveRegistered) {
  h_.Query(asks_, x, 1);
  RegisterTombstone();
  h_.Delete(asks_, x, 2);
  h_.Advance(absl::Seconds(2));
  EXPECT_EQ(Answers(v1::ShardMessage::kDeleteReply), 0) << "a node still serves it";
  h_.Confirm(late_, x, deleted_);
  const auto reply = h_.Last(asks_, v1::ShardMessage::kDeleteReply);
  ASSERT_TRUE(reply.has_value());
  EXPECT_EQ(reply->delete_reply().code(), 0);
}

// The shard died before its verdict ADOPTED reached the creator; the creator learned of the
// adoption from the nodes that it served. Its generation can be the only one that was not deleted.
TEST_F(RestartedShard, AGenerationThatMayBeDeletedSupersedesNone) {
  Register(holder_, {.adopted = false, .sender = {}});
  EXPECT_EQ(h_.LastVerdict(holder_), v1::Verdict::UNKNOWN);
  RegisterTombstone();
  h_.Advance(absl::Seconds(2));
  EXPECT_EQ(h_.LastVerdict(holder_), v1::Verdict::ADOPTED);
}

TEST_F(RestartedShard, APutStandsByUntilAllNodesHaveRegistered) {
  const Generation put = h_.Create(holder_, x, {.complete = true});
  EXPECT_EQ(h_.LastVerdict(holder_), v1::Verdict::STANDBY);
  RegisterTombstone();
  h_.Advance(absl::Seconds(2));
  EXPECT_EQ(h_.LastVerdict(holder_), v1::Verdict::ADOPTED);
  EXPECT_EQ(FromProto(h_.Describe(x).summary().generation()), put);
}

TEST_F(RestartedShard, AStandbyIsSupersededOnceNoTombstoneCanArrive) {
  h_.Create(holder_, x, {.complete = true});
  h_.Advance(absl::Seconds(2));
  EXPECT_EQ(h_.LastVerdict(holder_), v1::Verdict::SUPERSEDED);
}

TEST(RestartTest, AProvisionalGenerationSupersedesNone) {
  Harness h(/*learning=*/true);
  const NodeKey a = h.Up("a");
  const NodeKey b = h.Up("b");
  const NodeKey c = h.Up("c");
  h.Create(a, x, {.complete = true});
  const Generation old{b, 9};
  h.NewSession(b, /*had_session=*/true);
  h.RegisterCopy(b, x, old, {.adopted = false, .complete = true, .sender = {}});
  h.RegisterEnd(b);
  EXPECT_EQ(h.LastVerdict(b), v1::Verdict::STANDBY) << "it may have been adopted, unheard";
  h.NewSession(c, true);
  h.RegisterCopy(c, x, old, {.complete = true, .sender = {}});
  h.RegisterEnd(c);
  EXPECT_EQ(h.LastVerdict(a), v1::Verdict::STANDBY);
  EXPECT_EQ(h.LastVerdict(b), v1::Verdict::ADOPTED);
  EXPECT_EQ(h.Describe(x).summary().complete_copies(), 2u);
}

}  // namespace
// Two nodes register with a new shard: one pulls from the other, which has lost its bytes and wants
// the object again. If the first fed the second, neither would ever get a byte.
class PullFromANodeWithoutACopy : public ::testing::Test {
 protected:
  void RegisterReceiver() {
    h_.NewSession(receiver_, /*had_session=*/true);
    h_.RegisterCopy(receiver_, x, Generation{other_, 9},
                    {.complete = false, .primary = false, .sender = sender_});
    h_.RegisterWant(receiver_, x);
    h_.RegisterEnd(receiver_);
  }

  void RegisterSender(bool wants) {
    h_.NewSession(sender_, /*had_session=*/true);
    if (wants) h_.RegisterWant(sender_, x);
    h_.RegisterEnd(sender_);
  }

  void ExpectBothWaitForTheCompleteCopy() {
    EXPECT_FALSE(h_.LastAssign(sender_, x).has_value());
    h_.NewSession(other_, /*had_session=*/true);
    h_.RegisterCopy(other_, x, Generation{other_, 9}, {.sender = {}});
    h_.RegisterEnd(other_);
    EXPECT_TRUE(h_.SenderOf(receiver_, x) == other_ || h_.SenderOf(sender_, x) == other_);
    h_.Finish(receiver_, x);
    h_.Finish(sender_, x);
    EXPECT_EQ(h_.Describe(x).summary().complete_copies(), 3u);
  }

  Harness h_{/*learning=*/true};
  const NodeKey receiver_ = h_.Up("receiver");
  const NodeKey sender_ = h_.Up("sender");
  const NodeKey other_ = h_.Up("other");
};

TEST_F(PullFromANodeWithoutACopy, IsPlannedAgainIfTheSenderHasRegistered) {
  RegisterSender(/*wants=*/true);
  RegisterReceiver();
  ExpectBothWaitForTheCompleteCopy();
}

TEST_F(PullFromANodeWithoutACopy, IsPlannedAgainWhenTheSenderRegistersItsWant) {
  RegisterReceiver();
  RegisterSender(/*wants=*/true);
  ExpectBothWaitForTheCompleteCopy();
}

TEST_F(PullFromANodeWithoutACopy, IsPlannedAgainWhenTheSenderWantsTheObject) {
  RegisterReceiver();
  RegisterSender(/*wants=*/false);
  h_.Want(sender_, x);
  ExpectBothWaitForTheCompleteCopy();
}

}  // namespace phalanx::directory
