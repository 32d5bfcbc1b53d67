#include "src/object_store/store/shard_requests.h"

#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "src/directory/core/validate.h"
#include "src/object_store/testing/store_parts.h"

namespace phalanx::object_store {
namespace {

using phalanx::testing::IsOk;
using phalanx::testing::StatusIs;
using ::testing::HasSubstr;
using testing::Kinds;
using testing::StoreParts;

class ShardRequestsTest : public StoreParts {
 protected:
  explicit ShardRequestsTest(int num_shards = 1) : StoreParts(num_shards) {}

  StatusDone Outcome() {
    return [this](absl::Status status) { outcomes_.push_back(std::move(status)); };
  }
  NodesDone Nodes() {
    return [this](absl::StatusOr<int> nodes) { nodes_.push_back(std::move(nodes)); };
  }
  template <typename Part>
  RequestId Start(Part part, Instant deadline = Instant::Infinite()) {
    RequestId id = 0;
    Run([&] { id = shard_requests_.Start(client_, Id(1), deadline, std::move(part)); });
    return id;
  }
  RequestId Broadcast(BroadcastOptions options = {}) {
    return Start(BroadcastPart{std::move(options), Nodes()});
  }
  void StartDrain() {
    Run([&] { shard_requests_.StartDrain(Instant::Infinite(), Outcome()); });
  }
  void OnDrainStatus(int shard, uint32_t left, const std::string& message = "") {
    v1::DrainStatus status;
    status.set_objects_left(left);
    status.set_message(message);
    Run([&] { shard_requests_.OnDrainStatus(shard, status); });
    HandOut();
  }
  template <typename Reply>
  static Reply ReplyTo(RequestId request, absl::StatusCode code = absl::StatusCode::kOk) {
    Reply reply;
    reply.set_request_id(request);
    reply.set_code(static_cast<int>(code));
    return reply;
  }
  ObjectStat Stat(const v1::QueryReply& like) {
    ObjectStat stat;
    const RequestId id = Start(StatPart{{}, [&](absl::StatusOr<ObjectStat> result) {
                                          PHALANX_ASSERT_OK(result);
                                          stat = *std::move(result);
                                        }});
    v1::QueryReply reply = like;
    reply.set_request_id(id);
    Run([&] { shard_requests_.OnQueryReply(reply); });
    HandOut();
    return stat;
  }

  std::vector<absl::Status> outcomes_;
  std::vector<absl::StatusOr<int>> nodes_;
  ShardRequests shard_requests_{"node-a", loop_,    turns_,    requests_, table_,
                                gets_,    deleted_, stickies_, channel_};
};

TEST_F(ShardRequestsTest, ARequestIsSentAndEndsWithTheReply) {
  const RequestId id = Start(DeletePart{Outcome()});
  EXPECT_EQ(Sent(), Kinds{"delete_request"});
  Run([&] { shard_requests_.OnDeleteReply(ReplyTo<v1::DeleteReply>(id + 1)); });
  HandOut();
  EXPECT_TRUE(outcomes_.empty()) << "the reply to another request";
  Run([&] { shard_requests_.OnDeleteReply(ReplyTo<v1::DeleteReply>(id)); });
  HandOut();
  ASSERT_EQ(outcomes_.size(), 1u);
  EXPECT_THAT(outcomes_[0], IsOk());
}

TEST_F(ShardRequestsTest, TheErrorOfTheShardIsTheAnswer) {
  const RequestId id = Start(KeepPart{Outcome()});
  EXPECT_EQ(Sent(), Kinds{"keep_request"});
  v1::KeepReply reply = ReplyTo<v1::KeepReply>(id, absl::StatusCode::kNotFound);
  reply.set_message("no such object");
  Run([&] { shard_requests_.OnKeepReply(reply); });
  HandOut();
  EXPECT_THAT(outcomes_.at(0), StatusIs(absl::StatusCode::kNotFound, "no such object"));
}

TEST_F(ShardRequestsTest, ACodeThatIsNoneIsUnknown) {
  const RequestId id = Start(KeepPart{Outcome()});
  v1::KeepReply reply = ReplyTo<v1::KeepReply>(id);
  reply.set_code(99);
  Run([&] { shard_requests_.OnKeepReply(reply); });
  HandOut();
  EXPECT_THAT(outcomes_.at(0), StatusIs(absl::StatusCode::kUnknown));
}

TEST_F(ShardRequestsTest, DeletedGenerationsAreKeptForRegistrations) {
  const RequestId id = Start(DeletePart{Outcome()});
  v1::DeleteReply reply = ReplyTo<v1::DeleteReply>(id);
  directory::ToProto(Generation{kPeer, 3}, reply.add_generations());
  Run([&] { shard_requests_.OnDeleteReply(reply); });
  EXPECT_TRUE(deleted_.Contains(Id(1), Generation{kPeer, 3}));
  HandOut();
}

TEST_F(ShardRequestsTest, ARequestWithAPastDeadlineIsNotSent) {
  Start(DeletePart{Outcome()}, Now());
  EXPECT_EQ(Sent(), Kinds{});
  HandOut();
  EXPECT_THAT(outcomes_.at(0), StatusIs(absl::StatusCode::kDeadlineExceeded));
}

TEST_F(ShardRequestsTest, ARequestThatCannotBeginIsAnsweredWithTheReason) {
  Run([&] {
    shard_requests_.Start(client_, ObjectId(), Instant::Infinite(), DeletePart{Outcome()});
  });
  EXPECT_EQ(Sent(), Kinds{});
  HandOut();
  EXPECT_THAT(outcomes_.at(0), StatusIs(absl::StatusCode::kInvalidArgument));
}

TEST_F(ShardRequestsTest, ANewSessionIsSentTheRequestsWithoutAnAnswer) {
  const RequestId answered = Start(DeletePart{Outcome()});
  Start(KeepPart{Outcome()});
  Run([&] { shard_requests_.OnDeleteReply(ReplyTo<v1::DeleteReply>(answered)); });
  Sent();
  Run([&] { shard_requests_.SendAgain(0); });
  EXPECT_EQ(Sent(), Kinds{"keep_request"});
  HandOut();
}

// ----------------------------------------------------------------------------------------- Stat

TEST_F(ShardRequestsTest, AStatHasTheCountsOfTheShard) {
  v1::QueryReply reply;
  reply.set_known(true);
  reply.mutable_info()->set_size_bytes(9);
  reply.set_complete_copies(2);
  reply.set_holders(3);
  const ObjectStat stat = Stat(reply);
  EXPECT_TRUE(stat.known);
  EXPECT_FALSE(stat.local_complete);
  EXPECT_EQ(stat.size_bytes, 9u);
  EXPECT_EQ(stat.complete_copies, 2u);
  EXPECT_EQ(stat.holders, 3u);
}

TEST_F(ShardRequestsTest, ACopyHereCountsEvenIfTheShardDoesNotKnowIt) {
  AddCopy(1, CopyState::kComplete);
  v1::QueryReply reply;
  reply.set_deleted(true);
  const ObjectStat stat = Stat(reply);
  EXPECT_TRUE(stat.known);
  EXPECT_TRUE(stat.local_complete);
  EXPECT_FALSE(stat.deleted);
  EXPECT_EQ(stat.size_bytes, 4u);
  EXPECT_EQ(stat.complete_copies, 1u);
}

// ------------------------------------------------------------------------------------ Broadcast

TEST_F(ShardRequestsTest, ABroadcastEndsWithTheNumberOfNodes) {
  const RequestId broadcast = Broadcast();
  EXPECT_EQ(Sent(), Kinds{"broadcast_request"});
  auto reply = ReplyTo<v1::BroadcastReply>(broadcast);
  reply.set_nodes(3);
  Run([&] { shard_requests_.OnBroadcastReply(reply); });
  HandOut();
  ASSERT_EQ(nodes_.size(), 1u);
  EXPECT_EQ(*nodes_[0], 3);
}

TEST_F(ShardRequestsTest, ABroadcastThatBeganIsRepeatedAsOneThatBegan) {
  const RequestId id = Broadcast({.nodes = {"b"}, .sticky = true});
  EXPECT_FALSE(sent_.at(0).broadcast_request().begun());
  v1::BroadcastBegun begun;
  begun.set_request_id(id);
  begun.mutable_mark()->set_stamp(7);
  Run([&] { shard_requests_.OnBroadcastBegun(0, begun); });
  EXPECT_EQ(stickies_.LastStamp(0), 7u);
  sent_.clear();
  Run([&] { shard_requests_.SendAgain(0); });
  const v1::BroadcastRequest again = sent_.at(0).broadcast_request();
  EXPECT_TRUE(again.begun());
  EXPECT_TRUE(again.sticky());
  EXPECT_EQ(again.nodes(0), "b");
  EXPECT_EQ(again.mark().stamp(), 7u);
}

TEST_F(ShardRequestsTest, TheShardForgetsACallerThatLeavesBeforeTheReply) {
  const RequestId id = Broadcast();
  sent_.clear();
  Run([&] { shard_requests_.Leave(*requests_.Find(id)); });
  ASSERT_EQ(sent_.size(), 1u);
  EXPECT_TRUE(sent_[0].broadcast_request().end());
  Run([&] { shard_requests_.OnBroadcastReply(ReplyTo<v1::BroadcastReply>(id)); });
  sent_.clear();
  Run([&] { shard_requests_.Leave(*requests_.Find(id)); });
  EXPECT_EQ(Sent(), Kinds{}) << "it has answered";
  HandOut();
}

TEST_F(ShardRequestsTest, AStopAndADeleteHaveNoCallerThatTheShardRemembers) {
  const RequestId stop = Broadcast({.nodes = {}, .stop = true});
  const RequestId remove = Start(DeletePart{Outcome()});
  Sent();
  Run([&] {
    shard_requests_.Leave(*requests_.Find(stop));
    shard_requests_.Leave(*requests_.Find(remove));
  });
  EXPECT_EQ(Sent(), Kinds{});
}

// ---------------------------------------------------------------------------------------- Drain

class TwoShardsTest : public ShardRequestsTest {
 protected:
  TwoShardsTest() : ShardRequestsTest(/*num_shards=*/2) {}
};

TEST_F(TwoShardsTest, ADrainEndsWhenNoShardHasObjectsLeft) {
  StartDrain();
  EXPECT_EQ(Sent(), (Kinds{"drain_request", "drain_request"}));
  OnDrainStatus(0, 0);
  OnDrainStatus(1, 2);
  EXPECT_TRUE(outcomes_.empty());
  OnDrainStatus(1, 0);
  ASSERT_EQ(outcomes_.size(), 1u);
  EXPECT_THAT(outcomes_[0], IsOk());
}

TEST_F(TwoShardsTest, OneDrainRunsAtATime) {
  StartDrain();
  StartDrain();
  HandOut();
  ASSERT_EQ(outcomes_.size(), 1u);
  EXPECT_THAT(outcomes_[0], StatusIs(absl::StatusCode::kFailedPrecondition));
}

TEST_F(TwoShardsTest, ADrainCanBeRequestedAgainOnceItHasEndedOrIsCancelled) {
  StartDrain();
  OnDrainStatus(0, 0);
  OnDrainStatus(1, 0);
  StartDrain();
  Run([&] {
    Request* request = requests_.Find(requests_
                                          .Waiting([](const Request& open) {
                                            return std::holds_alternative<DrainPart>(open.part);
                                          })
                                          .at(0));
    shard_requests_.Leave(*request);
    requests_.Erase(*request);
  });
  StartDrain();
  HandOut();
  EXPECT_EQ(outcomes_.size(), 1u) << "the first has ended, the third waits";
}

TEST_F(TwoShardsTest, ADrainIsSentAgainInANewSession) {
  StartDrain();
  Sent();
  Run([&] { shard_requests_.SendAgain(1); });
  EXPECT_EQ(Sent(), Kinds{"drain_request"});
}

TEST_F(TwoShardsTest, AnOverdueDrainNamesTheNumberOfObjectsLeft) {
  DrainPart drain;
  drain.left = {3, std::nullopt};
  drain.message = "no other node has room";
  EXPECT_THAT(shard_requests_.DrainOverdue(drain),
              StatusIs(absl::StatusCode::kDeadlineExceeded, HasSubstr("3 objects")));
  EXPECT_THAT(shard_requests_.DrainOverdue(drain),
              StatusIs(absl::StatusCode::kDeadlineExceeded, HasSubstr("no other node has room")));
}

}  // namespace
}  // namespace phalanx::object_store
