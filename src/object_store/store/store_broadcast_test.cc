// What a node asks of broadcasts, and what it keeps in mind of those that are sticky.
#include <optional>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "src/common/testing/status_matchers.h"
#include "src/object_store/testing/store_world.h"

namespace phalanx::object_store::testing {
namespace {

using ::phalanx::testing::IsOk;
using ::phalanx::testing::StatusIs;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class StoreBroadcastTest : public ::testing::Test {
 protected:
  RequestId Ask(BroadcastOptions options, Instant deadline = Instant::Infinite()) {
    RequestId request = 0;
    w_.Run([&] {
      request =
          w_.store().Broadcast(w_.client(), Id(1), std::move(options), deadline,
                               [this](absl::StatusOr<int> nodes) { answer_ = std::move(nodes); });
    });
    return request;
  }
  void Reply(RequestId request, absl::StatusCode code, uint32_t nodes) {
    v1::ShardMessage message;
    v1::BroadcastReply& reply = *message.mutable_broadcast_reply();
    reply.set_request_id(request);
    reply.set_code(static_cast<int>(code));
    reply.set_message("some have not taken it");
    reply.set_nodes(nodes);
    w_.Shard(message);
  }
  Generation Put() {
    EXPECT_THAT(w_.Put(Id(1), "bytes"), IsOk());
    const Generation generation =
        directory::FromProto(w_.Sent<v1::AnnounceCreate>().back().generation());
    v1::ShardMessage verdict;
    SetSubject(Id(1), generation, verdict.mutable_verdict());
    verdict.mutable_verdict()->set_kind(v1::Verdict::ADOPTED);
    w_.Shard(verdict);
    return generation;
  }
  void Tell(const Generation& generation, uint64_t stamp, const std::string& node) {
    v1::ShardMessage message;
    SetSubject(Id(1), generation, message.mutable_sticky());
    message.mutable_sticky()->mutable_mark()->set_stamp(stamp);
    if (!node.empty()) message.mutable_sticky()->mutable_mark()->add_nodes(node);
    w_.Shard(message);
  }
  v1::StickyMark Registered() {
    w_.ForgetSent();
    w_.Run([&] { w_.channel().OnSession(0); });
    const auto copies = w_.Sent<v1::RegisterCopy>();
    return copies.empty() ? v1::StickyMark() : copies.back().sticky();
  }

  StoreWorld w_;
  std::optional<absl::StatusOr<int>> answer_;
};

v1::ShardMessage Fetch(PlanId plan, bool end) {
  v1::ShardMessage message;
  message.mutable_fetch()->set_object_id(IdBytes(Id(2)));
  message.mutable_fetch()->set_plan_id(plan);
  message.mutable_fetch()->set_end(end);
  return message;
}

TEST_F(StoreBroadcastTest, AnOrderThatTheShardEndsIsGivenUp) {
  w_.Shard(Fetch(5, /*end=*/false));
  ASSERT_EQ(w_.Sent<v1::Want>().size(), 1u);
  w_.Shard(Fetch(4, /*end=*/true));
  EXPECT_THAT(w_.Sent<v1::Unwant>(), IsEmpty()) << "an earlier order";
  w_.Shard(Fetch(5, /*end=*/true));
  ASSERT_EQ(w_.Sent<v1::Unwant>().size(), 1u);
  EXPECT_EQ(w_.Sent<v1::Unwant>()[0].fetch(), 5u);
}

TEST_F(StoreBroadcastTest, AnEndedOrderDoesNotEndTheGetsOfClients) {
  const auto reading = w_.Get(Id(2));
  w_.Shard(Fetch(5, /*end=*/false));
  w_.Shard(Fetch(5, /*end=*/true));
  EXPECT_THAT(w_.Sent<v1::Unwant>(), IsEmpty());
  EXPECT_FALSE(reading->answered());
}

TEST_F(StoreBroadcastTest, ACopyThatIsToBeKeptIsPrimaryUntilItIsReleased) {
  const Generation generation = w_.PullCopy(Id(2), "bytes");
  v1::ShardMessage order = Fetch(5, /*end=*/false);
  order.mutable_fetch()->set_keep(true);
  w_.ForgetSent();
  w_.Shard(order);
  ASSERT_EQ(w_.Sent<v1::PullReport>().size(), 1u);
  EXPECT_TRUE(w_.Sent<v1::PullReport>()[0].primary());
  EXPECT_TRUE(w_.store().Copies().at(0).primary);
  v1::ShardMessage release = Fetch(6, /*end=*/false);
  release.mutable_fetch()->set_release(true);
  w_.ForgetSent();
  w_.Shard(release);
  ASSERT_EQ(w_.Sent<v1::PullReport>().size(), 1u);
  const v1::PullReport report = w_.Sent<v1::PullReport>()[0];
  EXPECT_TRUE(report.complete());
  EXPECT_FALSE(report.primary());
  EXPECT_EQ(report.plan_id(), 6u);
  EXPECT_EQ(directory::FromProto(report.generation()), generation);
  EXPECT_FALSE(w_.store().Copies().at(0).primary);
}

TEST_F(StoreBroadcastTest, ThePutsNumberOfCopiesIsAnnouncedAndRegisteredUntilTheShardSendsAnother) {
  PutOptions options;
  options.id = Id(1);
  options.copies = 3;
  w_.StartPut(options, "bytes");
  const v1::AnnounceCreate announced = w_.Sent<v1::AnnounceCreate>().at(0);
  EXPECT_EQ(announced.mark().copies(), 3u);
  EXPECT_EQ(announced.mark().stamp(), directory::kCreatorStamp);
  EXPECT_EQ(Registered().copies(), 3u);
  v1::ShardMessage message;
  SetSubject(Id(1), directory::FromProto(announced.generation()), message.mutable_sticky());
  message.mutable_sticky()->mutable_mark()->set_stamp(7);
  message.mutable_sticky()->mutable_mark()->set_copies(2);
  w_.Shard(message);
  EXPECT_EQ(Registered().copies(), 2u);
  EXPECT_EQ(Registered().stamp(), 7u);
}

TEST_F(StoreBroadcastTest, APutThatWaitsForItsCopiesEndsWithThem) {
  PutOptions options;
  options.id = Id(1);
  options.copies = 2;
  options.wait_for_copies = true;
  const StoreWorld::PutAnswer put = w_.StartPut(options, "bytes");
  EXPECT_FALSE(put->has_value());
  const v1::BroadcastRequest asked = w_.Sent<v1::BroadcastRequest>().at(0);
  EXPECT_EQ(asked.copies(), 2u);
  Reply(asked.request_id(), absl::StatusCode::kOk, 2);
  ASSERT_TRUE(put->has_value());
  EXPECT_THAT(**put, IsOk());
}

// The node has relayed the object to others; its own client may have read the copy meanwhile.
TEST(StoreFetchTest, WhatWasFetchedForOthersIsEvictedFirstUnlessAClientHasReadIt) {
  for (const bool read : {false, true}) {
    SCOPED_TRACE(read);
    StoreWorld w(/*capacity=*/1000);
    w.PullCopy(Id(1), std::string(300, 'x'));
    w.Shard(Fetch(5, /*end=*/false));
    w.Shard(Assign(Id(2), Generation{kPeer, 7}, {.size = 300, .plan = 7}));
    w.Run([&] { w.pulls().Finish(w.pulls().size() - 1, std::string(300, 'y')); });
    if (read) {
      const auto reading = w.Get(Id(2));
      ASSERT_THAT(reading->status(), IsOk());
      ASSERT_THAT(w.Release(reading->view().pin), IsOk());
    }
    w.Shard(Fetch(5, /*end=*/true));
    w.ForgetSent();
    PutOptions options;
    options.id = Id(3);
    w.StartPut(options, std::string(600, 'z'));
    ASSERT_EQ(w.Sent<v1::EvictRequest>().size(), 1u);
    EXPECT_EQ(w.Sent<v1::EvictRequest>()[0].object_id(), IdBytes(Id(read ? 1 : 2)));
  }
}

TEST_F(StoreBroadcastTest, ABroadcastEndsWithTheAnswerOfTheShard) {
  const RequestId request = Ask({{"a", "*"}, true, false});
  const v1::BroadcastRequest asked = w_.Sent<v1::BroadcastRequest>().at(0);
  EXPECT_EQ(asked.request_id(), request);
  EXPECT_THAT(asked.nodes(), ElementsAre("a", "*"));
  EXPECT_TRUE(asked.sticky());
  EXPECT_FALSE(answer_.has_value());
  Reply(request, absl::StatusCode::kOk, 7);
  ASSERT_THAT(*answer_, IsOk());
  EXPECT_EQ(**answer_, 7);
  EXPECT_EQ(w_.Sent<v1::BroadcastRequest>().size(), 1u);
}

TEST_F(StoreBroadcastTest, ABroadcastEndsWithTheErrorOfTheShard) {
  Reply(Ask({{"*"}}), absl::StatusCode::kResourceExhausted, 1);
  EXPECT_THAT(*answer_, StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("taken it")));
}

TEST_F(StoreBroadcastTest, ABroadcastIsSentAgainInANewSession) {
  const RequestId request = Ask({{"*"}, true, false});
  w_.ForgetSent();
  w_.Run([&] { w_.channel().OnSession(0); });
  ASSERT_EQ(w_.Sent<v1::BroadcastRequest>().size(), 1u);
  EXPECT_EQ(w_.Sent<v1::BroadcastRequest>()[0].request_id(), request);
}

// What it has made sticky a stop may have ended since.
TEST_F(StoreBroadcastTest, ABroadcastThatHasBegunIsSentAgainAsBegun) {
  const RequestId first = Ask({{"b"}, true, false});
  EXPECT_FALSE(w_.Sent<v1::BroadcastRequest>().at(0).begun());
  v1::ShardMessage message;
  message.mutable_broadcast_begun()->set_request_id(first);
  message.mutable_broadcast_begun()->mutable_mark()->set_stamp(7);
  message.mutable_broadcast_begun()->mutable_mark()->add_nodes("b");
  w_.Shard(message);
  const RequestId second = Ask({{"*"}});
  w_.ForgetSent();
  w_.Run([&] { w_.channel().OnSession(0); });
  EXPECT_EQ(w_.Sent<v1::RegisterBegin>().at(0).sticky_stamp(), 7u);
  const auto asked = w_.Sent<v1::BroadcastRequest>();
  ASSERT_EQ(asked.size(), 2u);
  EXPECT_EQ(asked[0].request_id(), first);
  EXPECT_TRUE(asked[0].begun());
  EXPECT_EQ(asked[0].mark().stamp(), 7u);
  EXPECT_THAT(asked[0].mark().nodes(), ElementsAre("b"));
  EXPECT_EQ(asked[1].request_id(), second);
  EXPECT_FALSE(asked[1].begun());
  EXPECT_FALSE(asked[1].has_mark());
  message.mutable_broadcast_begun()->set_request_id(second);
  message.mutable_broadcast_begun()->clear_mark();
  w_.Shard(message);
  w_.ForgetSent();
  w_.Run([&] { w_.channel().OnSession(0); });
  EXPECT_TRUE(w_.Sent<v1::BroadcastRequest>().at(1).begun());
  Reply(first, absl::StatusCode::kOk, 1);
  EXPECT_THAT(*answer_, IsOk());
}

// Or the shard would have somebody to answer for as long as a node is full.
TEST_F(StoreBroadcastTest, TheShardIsNotifiedWhenTheCallerStopsWaiting) {
  const RequestId first = Ask({{"*"}}, w_.now() + absl::Seconds(1));
  w_.ForgetSent();
  w_.Pass(absl::Seconds(2));
  EXPECT_THAT(*answer_, StatusIs(absl::StatusCode::kDeadlineExceeded));
  ASSERT_EQ(w_.Sent<v1::BroadcastRequest>().size(), 1u);
  EXPECT_TRUE(w_.Sent<v1::BroadcastRequest>()[0].end());
  EXPECT_EQ(w_.Sent<v1::BroadcastRequest>()[0].request_id(), first);
  answer_.reset();
  const RequestId second = Ask({{"*"}});
  w_.ForgetSent();
  w_.Cancel(second);
  EXPECT_TRUE(w_.Sent<v1::BroadcastRequest>().at(0).end());
  Ask({{"*"}});
  w_.ForgetSent();
  w_.CloseClient(w_.client(), /*clean=*/false);
  EXPECT_TRUE(w_.Sent<v1::BroadcastRequest>().at(0).end());
  EXPECT_FALSE(answer_.has_value());
}

TEST_F(StoreBroadcastTest, AStickyMarkIsRegisteredAgain) {
  const Generation generation = Put();
  EXPECT_EQ(Registered().stamp(), 0u);
  Tell(generation, 1, "*");
  EXPECT_EQ(Registered().stamp(), 1u);
  EXPECT_THAT(Registered().nodes(), ElementsAre("*"));
  Tell(generation, 2, "");
  EXPECT_EQ(Registered().stamp(), 2u) << "that it was stopped, too";
  EXPECT_THAT(Registered().nodes(), IsEmpty());
}

TEST_F(StoreBroadcastTest, ItIsForgottenWithTheCopy) {
  const Generation generation = Put();
  Tell(Generation{kPeer, 1}, 3, "*");
  EXPECT_EQ(Registered().stamp(), 0u) << "of another one";
  EXPECT_EQ(w_.Sent<v1::RegisterBegin>().at(0).sticky_stamp(), 3u) << "but it was minted";
  Tell(generation, 1, "*");
  EXPECT_EQ(w_.store().Copies().at(0).sticky.stamp(), 1u);
  v1::ShardMessage gone = Gone(Id(1), generation, v1::Gone::DELETED);
  w_.Shard(gone);
  EXPECT_THAT(w_.store().Copies(), IsEmpty());
  Tell(generation, 2, "*");
  EXPECT_EQ(Registered().stamp(), 0u);
}

TEST_F(StoreBroadcastTest, StatReturnsTheProgressOfABroadcast) {
  std::optional<absl::StatusOr<ObjectStat>> stat;
  w_.Run([&] {
    w_.store().Stat(w_.client(), Id(1), Instant::Infinite(),
                    [&](absl::StatusOr<ObjectStat> found) { stat = std::move(found); }, {"*"});
  });
  EXPECT_THAT(w_.Sent<v1::QueryRequest>().at(0).nodes(), ElementsAre("*"));
  v1::ShardMessage message;
  v1::QueryReply& reply = *message.mutable_query_reply();
  reply.set_request_id(w_.Sent<v1::QueryRequest>()[0].request_id());
  reply.set_known(true);
  reply.set_sticky(true);
  reply.set_named(4);
  reply.set_named_complete(3);
  reply.set_named_without_room(1);
  reply.set_named_bytes(77);
  w_.Shard(message);
  ASSERT_THAT(*stat, IsOk());
  EXPECT_TRUE((*stat)->sticky);
  EXPECT_EQ((*stat)->named, 4u);
  EXPECT_EQ((*stat)->named_complete, 3u);
  EXPECT_EQ((*stat)->named_without_room, 1u);
  EXPECT_EQ((*stat)->named_bytes, 77u);
}

}  // namespace
}  // namespace phalanx::object_store::testing
