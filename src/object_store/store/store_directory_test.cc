// The store as the shard sees it: registration, verdicts after a restart, eviction, deletion,
// requests, drain.
#include <algorithm>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "src/common/testing/status_matchers.h"
#include "src/object_store/testing/store_world.h"

namespace phalanx::object_store {
namespace {

using phalanx::testing::IsOk;
using phalanx::testing::StatusIs;
using testing::Assign;
using testing::Content;
using testing::Deliver;
using testing::EvictReply;
using testing::Gone;
using ::testing::HasSubstr;
using testing::Id;
using testing::kOther;
using testing::kPeer;
using testing::StoreWorld;
using testing::Verdict;

constexpr Generation kForeign{kPeer, 7};

void Register(StoreWorld& w, int shard = 0) {
  w.ForgetSent();
  w.Run([&] { w.channel().OnSession(shard); });
}

// ------------------------------------------------------------------------------- registration

TEST(StoreRegisterTest, APullOfAnotherGenerationIsVoidWhenTheOwnOneIsAdopted) {
  StoreWorld w;
  const auto stream = w.Stream(Id(1));
  w.Shard(Assign(Id(1), kForeign, {.size = 800, .plan = 9}));
  w.Run([&] { w.pulls().End(0, absl::UnavailableError("the peer died")); });
  const absl::StatusOr<PutResult> put = w.Put(Id(1), "bytes");
  ASSERT_THAT(put, IsOk());
  EXPECT_TRUE(stream->voids.empty());
  w.Shard(Verdict(Id(1), put->generation, v1::Verdict::ADOPTED));
  EXPECT_EQ(stream->voids.size(), 1u);
  ASSERT_EQ(stream->views.size(), 2u);
  EXPECT_EQ(stream->bytes(), "bytes");
  for (const auto& copy : w.store().Copies()) EXPECT_EQ(copy.generation, put->generation);
}

TEST(StoreRegisterTest, AnOpenWantIsSentAgainWhenACopyIsWithdrawn) {
  StoreWorld w;
  const absl::StatusOr<PutResult> put = w.Put(Id(1), "bytes");
  ASSERT_THAT(put, IsOk());
  v1::ShardMessage fetch;
  fetch.mutable_fetch()->set_object_id(IdBytes(Id(1)));
  w.Shard(fetch);
  ASSERT_EQ(w.Sent<v1::Want>().size(), 1u);
  w.Shard(Verdict(Id(1), put->generation, v1::Verdict::SUPERSEDED, kForeign, 5));
  EXPECT_EQ(w.Sent<v1::Withdraw>().size(), 1u);
  EXPECT_EQ(w.Sent<v1::Want>().size(), 2u);
  EXPECT_TRUE(w.sent().back().has_want()) << "after the word that the copy is gone";
}

TEST(StoreRegisterTest, ADeletionIsRegisteredWithARestartedShardByItsRequester) {
  StoreWorld w;
  std::optional<absl::Status> deleted;
  w.Run([&] {
    w.store().Delete(w.client(), Id(1), Instant::Infinite(),
                     [&](const absl::Status& status) { deleted = status; });
  });
  v1::ShardMessage reply;
  reply.mutable_delete_reply()->set_request_id(w.Sent<v1::DeleteRequest>()[0].request_id());
  directory::ToProto(kForeign, reply.mutable_delete_reply()->add_generations());
  w.Shard(reply);
  ASSERT_TRUE(deleted.has_value());
  EXPECT_THAT(*deleted, IsOk());
  Register(w);
  ASSERT_EQ(w.Sent<v1::RegisterTombstone>().size(), 1u);
  EXPECT_EQ(directory::FromProto(w.Sent<v1::RegisterTombstone>()[0].generation()), kForeign);
}

TEST(StoreRegisterTest, TheWholeStateIsRegisteredBetweenBeginAndEnd) {
  StoreWorld w;
  const Generation put = w.Put(Id(1), "bytes")->generation;
  w.Shard(Verdict(Id(1), put, v1::Verdict::ADOPTED));
  ASSERT_THAT(w.Put(Id(2), "no verdict yet"), IsOk());
  const WriteGrant grant = w.Create(Id(3), 1000);
  ASSERT_THAT(w.Publish(grant.writer, 300), IsOk());
  w.PullCopy(Id(4), Content(500));
  const auto waiting = w.Get(Id(5));
  const auto pulling = w.Get(Id(6));
  w.Shard(Assign(Id(6), kForeign, {.size = 800, .plan = 9}));
  w.Run([&] { w.pulls().Feed(0, Content(800), 200); });
  w.Shard(Gone(Id(7), kForeign, v1::Gone::DELETED));

  Register(w);
  ASSERT_TRUE(w.sent().front().has_register_begin());
  EXPECT_FALSE(w.sent().front().register_begin().had_session());
  ASSERT_TRUE(w.sent().back().has_register_end());
  std::map<std::string, v1::RegisterCopy> copies;
  for (const auto& copy : w.Sent<v1::RegisterCopy>()) copies[copy.object_id()] = copy;
  ASSERT_EQ(copies.size(), 5u);
  const auto of = [&](int i) { return copies.at(IdBytes(Id(i))); };
  EXPECT_TRUE(of(1).adopted() && of(1).complete() && of(1).primary());
  EXPECT_TRUE(!of(2).adopted() && of(2).complete() && of(2).primary());
  EXPECT_TRUE(!of(3).complete() && of(3).watermarks(0) == 300 && !of(3).has_sender());
  EXPECT_TRUE(of(4).adopted() && of(4).complete() && !of(4).primary());
  EXPECT_TRUE(of(6).adopted() && !of(6).complete() && of(6).watermarks(0) == 200);
  EXPECT_EQ(directory::FromProto(of(6).sender()), kPeer);
  EXPECT_EQ(w.Sent<v1::RegisterWant>().size(), 2u);
  ASSERT_EQ(w.Sent<v1::RegisterTombstone>().size(), 1u);
  EXPECT_EQ(w.Sent<v1::RegisterTombstone>()[0].object_id(), IdBytes(Id(7)));

  // The pull goes on meanwhile, and its report still comes.
  w.Run([&] { w.pulls().Finish(0, Content(800)); });
  EXPECT_EQ(pulling->bytes(), Content(800));
  EXPECT_TRUE(w.Sent<v1::PullReport>()[0].complete());
  Register(w);
  EXPECT_TRUE(w.sent().front().register_begin().had_session());
}

TEST(StoreRegisterTest, ARegistrationHasOnlyTheObjectsOfItsShard) {
  StoreWorld w(64 << 20, {}, /*num_shards=*/3);
  for (int i = 0; i < 30; ++i) ASSERT_THAT(w.Put(Id(i), "x"), IsOk());
  size_t registered = 0;
  for (int shard = 0; shard < 3; ++shard) {
    Register(w, shard);
    for (const auto& copy : w.Sent<v1::RegisterCopy>()) {
      EXPECT_EQ(ObjectId::FromBinary(copy.object_id())->ShardHash() % 3,
                static_cast<uint64_t>(shard));
      ++registered;
    }
  }
  EXPECT_EQ(registered, 30u);
}

TEST(StoreRegisterTest, RequestsWithoutAnAnswerAreSentAgain) {
  StoreWorld w;
  int answers = 0;
  w.Run([&] {
    const Instant never = Instant::Infinite();
    w.store().Delete(w.client(), Id(1), never, [&](absl::Status) { ++answers; });
    w.store().Stat(w.client(), Id(2), never, [&](absl::StatusOr<ObjectStat>) { ++answers; });
    w.store().Broadcast(w.client(), Id(3), {.nodes = {"*"}}, never,
                        [&](absl::StatusOr<int>) { ++answers; });
    w.store().Drain(never, [&](absl::Status) { ++answers; });
  });
  const std::vector<v1::NodeMessage> first = w.sent();
  ASSERT_EQ(first.size(), 4u);
  Register(w);
  EXPECT_EQ(w.Sent<v1::DeleteRequest>().size(), 1u);
  EXPECT_EQ(w.Sent<v1::DeleteRequest>()[0].request_id(), first[0].delete_request().request_id());
  EXPECT_EQ(w.Sent<v1::QueryRequest>().size(), 1u);
  EXPECT_EQ(w.Sent<v1::BroadcastRequest>().size(), 1u);
  EXPECT_EQ(w.Sent<v1::DrainRequest>().size(), 1u);
  EXPECT_EQ(answers, 0);
}

TEST(StoreRegisterTest, ADeliveryThatWaitsForMemoryIsRequestedAgain) {
  StoreWorld w(/*capacity=*/100);
  const Generation g = w.Put(Id(1), Content(80))->generation;
  const auto reading = w.Get(Id(2));
  w.Shard(Deliver(Id(2), kForeign, Content(60)));
  EXPECT_FALSE(reading->answered());
  Register(w);
  EXPECT_EQ(w.Sent<v1::RegisterWant>().size(), 1u);
  w.Shard(Gone(Id(1), g, v1::Gone::DELETED));
  EXPECT_FALSE(reading->answered());
  w.Shard(Deliver(Id(2), kForeign, Content(60)));
  EXPECT_EQ(reading->bytes(), Content(60));
}

TEST(StoreRegisterTest, PlansOfTheNewSessionCountFromTheStart) {
  StoreWorld w;
  const auto reading = w.Get(Id(1));
  w.Shard(Assign(Id(1), kForeign, {.size = 100, .plan = 500}));
  Register(w);
  w.Shard(Assign(Id(1), kForeign, {.size = 100, .plan = 1, .sender = kOther}));
  ASSERT_EQ(w.pulls().size(), 1u);
  EXPECT_EQ(w.pulls().pull(0).spec.sender, kOther);
}

TEST(StoreRegisterTest, LosersOfARestartDropTheirBytes) {
  StoreWorld w;
  const Generation pulled = w.PullCopy(Id(1), Content(100));
  w.Shard(Verdict(Id(1), pulled, v1::Verdict::SUPERSEDED, kForeign, 100));
  EXPECT_TRUE(w.store().Copies().empty());
  EXPECT_EQ(w.Sent<v1::Withdraw>().size(), 1u);

  const auto stream = w.Stream(Id(2));
  w.Shard(Assign(Id(2), Generation{kPeer, 9}, {.size = 100, .plan = 900}));
  w.Shard(Verdict(Id(2), Generation{kPeer, 9}, v1::Verdict::SUPERSEDED, kForeign, 100));
  EXPECT_EQ(stream->voids.size(), 1u);
  EXPECT_EQ(w.pulls().size(), 0u);
  EXPECT_EQ(w.store().stats().waiting_gets, 1u);
}

TEST(StoreRegisterTest, AStandbyIsHiddenUntilItIsAdopted) {
  StoreWorld w;
  const Generation g = w.Put(Id(1), "mine")->generation;
  w.Shard(Verdict(Id(1), g, v1::Verdict::STANDBY, kForeign, 4));
  EXPECT_FALSE(w.store().ContainsLocally(Id(1)));
  const auto reading = w.Get(Id(1));
  EXPECT_FALSE(reading->answered());
  EXPECT_EQ(w.Sent<v1::Want>().size(), 1u);
  w.Shard(Verdict(Id(1), g, v1::Verdict::ADOPTED));
  EXPECT_EQ(reading->bytes(), "mine");
  EXPECT_EQ(w.Sent<v1::Unwant>().size(), 1u);
}

TEST(StoreRegisterTest, OwnBytesStandBehindTheGenerationThatIsAssigned) {
  StoreWorld w;
  const auto reading = w.Get(Id(1));
  w.Shard(Assign(Id(1), kForeign, {.size = 6, .plan = 4}));
  ASSERT_THAT(w.Put(Id(1), "mine!!"), IsOk());
  EXPECT_FALSE(reading->answered());
  w.Run([&] { w.pulls().Finish(0, "theirs"); });
  EXPECT_EQ(reading->bytes(), "theirs");
  EXPECT_EQ(w.Get(Id(1))->bytes(), "theirs");
}

// ----------------------------------------------------------------------------------- eviction

TEST(StoreEvictionTest, TheLeastRecentlyUsedSecondaryCopyGoesWhenTheShardGrantsIt) {
  StoreWorld w(/*capacity=*/1000);
  const Generation a = w.PullCopy(Id(1), Content(300));
  const Generation b = w.PullCopy(Id(2), Content(300));
  const auto used = w.Get(Id(1));
  EXPECT_THAT(w.Release(used->view().pin), IsOk());
  w.ForgetSent();
  PutOptions options;
  options.id = Id(3);
  const auto put = w.StartPut(options, Content(600));
  EXPECT_FALSE(put->has_value());
  ASSERT_EQ(w.Sent<v1::EvictRequest>().size(), 1u);
  EXPECT_EQ(w.Sent<v1::EvictRequest>()[0].object_id(), IdBytes(Id(2)));
  // Until the grant it is a copy like any other.
  EXPECT_TRUE(w.store().ContainsLocally(Id(2)));
  w.Shard(EvictReply(Id(2), b, true));
  EXPECT_FALSE(w.store().ContainsLocally(Id(2)));
  EXPECT_TRUE(w.store().ContainsLocally(Id(1)));
  EXPECT_THAT(**put, IsOk());
  EXPECT_EQ(w.store().stats().evictions, 1u);
  (void)a;
}

TEST(StoreRegisterTest, ADeletionIsReportedToAShardThatStillServesTheObject) {
  StoreWorld w;
  w.Shard(Gone(Id(1), kForeign, v1::Gone::DELETED));
  const auto get = w.Get(Id(1));
  w.ForgetSent();
  w.Shard(Assign(Id(1), kForeign, {.size = 800, .plan = 9}));
  ASSERT_EQ(w.Sent<v1::RegisterTombstone>().size(), 1u);
  EXPECT_EQ(directory::FromProto(w.Sent<v1::RegisterTombstone>()[0].generation()), kForeign);
  w.Shard(Gone(Id(1), kForeign, v1::Gone::DELETED));
  EXPECT_EQ(get->status().code(), absl::StatusCode::kNotFound) << "it does not wait for ever";
}

TEST(StoreEvictionTest, ACopyThatCanBeEvictedIsNotReportedAgain) {
  StoreWorld w(/*capacity=*/1000);
  const Generation a = w.PullCopy(Id(1), Content(600));
  w.ForgetSent();
  PutOptions options;
  options.id = Id(2);
  const auto put = w.StartPut(options, Content(600));
  ASSERT_EQ(w.Sent<v1::EvictRequest>().size(), 1u);
  w.Shard(Assign(Id(1), a, {.size = 600, .plan = 77}));
  EXPECT_TRUE(w.Sent<v1::PullReport>().empty());
  w.Shard(EvictReply(Id(1), a, true));
  EXPECT_THAT(**put, IsOk());
}

TEST(StoreEvictionTest, ARefusedCopyStaysAndAnotherEvictionIsRequested) {
  StoreWorld w(/*capacity=*/1000);
  const Generation a = w.PullCopy(Id(1), Content(400));
  const Generation b = w.PullCopy(Id(2), Content(400));
  PutOptions options;
  options.id = Id(3);
  const auto put = w.StartPut(options, Content(600));
  w.Shard(EvictReply(Id(1), a, false));
  ASSERT_EQ(w.Sent<v1::EvictRequest>().size(), 2u);
  EXPECT_EQ(w.Sent<v1::EvictRequest>()[1].object_id(), IdBytes(Id(2)));
  w.Shard(EvictReply(Id(2), b, true));
  EXPECT_THAT(**put, IsOk());
  EXPECT_TRUE(w.store().ContainsLocally(Id(1)));
}

TEST(StoreEvictionTest, ARefusedEvictionIsRequestedAgainAfterASecondWhileARequestWaits) {
  StoreWorld w(/*capacity=*/1000);
  const Generation a = w.PullCopy(Id(1), Content(600));
  PutOptions options;
  options.id = Id(3);
  options.deadline = w.now() + absl::Milliseconds(2500);
  const auto put = w.StartPut(options, Content(600));
  for (int i = 0; i < 3; ++i) {
    ASSERT_EQ(w.Sent<v1::EvictRequest>().size(), static_cast<size_t>(i + 1));
    w.Shard(EvictReply(Id(1), a, false));
    w.Pass(absl::Milliseconds(999));
    ASSERT_EQ(w.Sent<v1::EvictRequest>().size(), static_cast<size_t>(i + 1));
    w.Pass(absl::Milliseconds(1));
  }
  EXPECT_THAT(**put, StatusIs(absl::StatusCode::kResourceExhausted));
  w.Pass(absl::Seconds(10));
  EXPECT_EQ(w.Sent<v1::EvictRequest>().size(), 3u);
}

TEST(StoreEvictionTest, ACopyThatWasPinnedMeanwhileLeavesTheTableAndItsMemoryFollowsTheReader) {
  StoreWorld w(/*capacity=*/1000);
  const Generation a = w.PullCopy(Id(1), Content(600));
  PutOptions options;
  options.id = Id(3);
  const auto put = w.StartPut(options, Content(600));
  const auto reading = w.Get(Id(1));
  w.Shard(EvictReply(Id(1), a, true));
  EXPECT_FALSE(w.store().ContainsLocally(Id(1)));
  EXPECT_FALSE(put->has_value());
  EXPECT_EQ(reading->bytes(), Content(600));
  EXPECT_THAT(w.Release(reading->view().pin), IsOk());
  EXPECT_THAT(**put, IsOk());
}

TEST(StoreEvictionTest, CopiesThatAreReadOrSentAreNotEvicted) {
  StoreWorld w(/*capacity=*/1000);
  const Generation a = w.PullCopy(Id(1), Content(600));
  net::ServeGrant grant;
  w.Run([&] { grant = *w.store().Serve({kOther, Id(1), a, 1, "peer"}); });
  PutOptions options;
  options.id = Id(3);
  const auto put = w.StartPut(options, Content(600));
  EXPECT_TRUE(w.Sent<v1::EvictRequest>().empty());
  w.Run([&] { grant = net::ServeGrant(); });
  EXPECT_EQ(w.Sent<v1::EvictRequest>().size(), 1u);
  w.Shard(EvictReply(Id(1), a, true));
  EXPECT_THAT(**put, IsOk());
}

TEST(StoreEvictionTest, OpenEvictRequestsAreSentAgainInANewSession) {
  StoreWorld w(/*capacity=*/1000);
  const Generation a = w.PullCopy(Id(1), Content(600));
  PutOptions options;
  options.id = Id(3);
  const auto put = w.StartPut(options, Content(600));
  Register(w);
  EXPECT_EQ(w.Sent<v1::EvictRequest>().size(), 1u);
  w.Shard(EvictReply(Id(1), a, true));
  EXPECT_THAT(**put, IsOk());
}

TEST(StoreEvictionTest, UnexpectedRepliesAreIgnored) {
  StoreWorld w(/*capacity=*/1000);
  const Generation a = w.PullCopy(Id(1), Content(600));
  w.Shard(EvictReply(Id(1), a, true));
  w.Shard(EvictReply(Id(2), a, true));
  EXPECT_TRUE(w.store().ContainsLocally(Id(1)));
}

TEST(StoreEvictionTest, ASmallPutPassesAPullThatOnlyADeleteCanHelp) {
  StoreWorld w(/*capacity=*/1000);
  ASSERT_THAT(w.Put(Id(1), Content(600)), IsOk());
  const auto stuck = w.Get(Id(2));
  w.Shard(Assign(Id(2), kForeign, {.size = 900, .plan = 4}));
  EXPECT_EQ(w.store().stats().waiting_for_memory, 1u);
  EXPECT_THAT(w.Put(Id(3), Content(300)), IsOk());
  EXPECT_FALSE(stuck->answered());
}

TEST(StoreEvictionTest, BytesOfALostObjectGiveWayToThePutThatMayBringItBack) {
  StoreWorld w(/*capacity=*/1000);
  const auto reading = w.Get(Id(1));
  w.Shard(Assign(Id(1), kForeign, {.size = 600, .plan = 4}));
  w.Run([&] {
    w.pulls().Feed(0, Content(600), 100);
    w.pulls().End(0, absl::UnavailableError("died"));
  });
  w.Shard(Gone(Id(1), kForeign, v1::Gone::LOST));
  // While there is room for both it is kept.
  ASSERT_THAT(w.Put(Id(2), Content(300)), IsOk());
  EXPECT_EQ(w.store().Copies().size(), 2u);
  w.ForgetSent();
  ASSERT_THAT(w.Put(Id(3), Content(600)), IsOk());
  EXPECT_EQ(w.Sent<v1::Withdraw>().size(), 1u);
  EXPECT_TRUE(w.Sent<v1::Unwant>().empty()) << "it is wanted as before";
  EXPECT_FALSE(reading->answered());
  // A holder is back: the pull begins anew when there is room again.
  w.Shard(Assign(Id(1), kForeign, {.size = 600, .plan = 5}));
  EXPECT_EQ(w.pulls().size(), 0u);
  for (const auto& copy : w.store().Copies()) {
    if (copy.id == Id(3)) w.Shard(Gone(Id(3), copy.generation, v1::Gone::DELETED));
  }
  ASSERT_EQ(w.pulls().size(), 1u);
  EXPECT_EQ(w.pulls().pull(0).spec.into->watermark(0), 0u);
  w.Run([&] { w.pulls().Finish(0, Content(600)); });
  EXPECT_EQ(reading->bytes(), Content(600));
}

TEST(StoreEvictionTest, APullThatLackedMemoryForLongRequestsASenderWhenItHasSome) {
  StoreWorld w(/*capacity=*/1000);
  const absl::StatusOr<PutResult> put = w.Put(Id(1), Content(900));
  ASSERT_THAT(put, IsOk());
  const auto reading = w.Get(Id(2));
  w.Shard(Assign(Id(2), kForeign, {.size = 500, .plan = 4}));
  w.ForgetSent();
  w.Pass(absl::Milliseconds(199));
  EXPECT_TRUE(w.Sent<v1::Want>().empty());
  w.Pass(absl::Milliseconds(1));
  ASSERT_EQ(w.Sent<v1::Want>().size(), 1u) << "the shard shall send nobody here for it";
  EXPECT_EQ(directory::FromProto(w.Sent<v1::Want>()[0].no_room_for()), kForeign);
  w.Shard(Gone(Id(1), put->generation, v1::Gone::DELETED));
  ASSERT_EQ(w.Sent<v1::Want>().size(), 2u);
  EXPECT_FALSE(w.Sent<v1::Want>()[1].has_no_room_for());
  EXPECT_EQ(w.pulls().size(), 0u);
  w.Shard(Assign(Id(2), kForeign, {.size = 500, .plan = 5}));
  ASSERT_EQ(w.pulls().size(), 1u);
  w.Run([&] { w.pulls().Finish(0, Content(500)); });
  EXPECT_EQ(reading->bytes(), Content(500));
}

TEST(StoreEvictionTest, MemoryThatCameForASenderThatNeverComesGivesWay) {
  StoreWorld w(/*capacity=*/1000);
  const absl::StatusOr<PutResult> put = w.Put(Id(1), Content(900));
  ASSERT_THAT(put, IsOk());
  const auto reading = w.Get(Id(2));
  w.Shard(Assign(Id(2), kForeign, {.size = 500, .plan = 4}));
  w.Pass(absl::Milliseconds(200));
  w.Shard(Gone(Id(1), put->generation, v1::Gone::DELETED));
  ASSERT_THAT(w.Put(Id(3), Content(900)), IsOk());
  EXPECT_FALSE(reading->answered());
  EXPECT_TRUE(w.Sent<v1::Unwant>().empty()) << "it is wanted as before";
}

TEST(StoreEvictionTest, APartialCopyThatIsFedOrReadDoesNotGiveWay) {
  StoreWorld w(/*capacity=*/1000);
  const auto reading = w.Stream(Id(1));
  w.Shard(Assign(Id(1), kForeign, {.size = 600, .plan = 4}));
  PutOptions options;
  options.id = Id(2);
  const auto put = w.StartPut(options, Content(600));
  EXPECT_FALSE(put->has_value());
  w.Run([&] { w.pulls().End(0, absl::UnavailableError("died")); });
  EXPECT_FALSE(put->has_value()) << "a reader looks through it";
  EXPECT_TRUE(reading->voids.empty());
}

// --------------------------------------------------------------------------------------- push

TEST(StoreServeTest, ACopyIsPinnedWhileItIsSent) {
  StoreWorld w;
  const Generation g = w.Put(Id(1), "bytes")->generation;
  absl::StatusOr<net::ServeGrant> grant = absl::UnknownError("");
  w.Run([&] { grant = w.store().Serve({kPeer, Id(1), g, 1, "peer"}); });
  ASSERT_THAT(grant, IsOk());
  w.Shard(Gone(Id(1), g, v1::Gone::DELETED));
  EXPECT_EQ(w.pulls().aborted.size(), 1u);
  EXPECT_EQ(w.store().stats().used_bytes, 5u);
  w.Run([&] { grant = absl::UnknownError(""); });
  EXPECT_EQ(w.store().stats().used_bytes, 0u);
}

TEST(StoreServeTest, ARelayServesWhileItReceives) {
  StoreWorld w;
  const auto reading = w.Get(Id(1));
  w.Shard(Assign(Id(1), kForeign, {.size = 1000, .plan = 4}));
  w.Run([&] {
    w.pulls().Feed(0, Content(1000), 300);
    const auto grant = w.store().Serve({kOther, Id(1), kForeign, 1, "peer"});
    ASSERT_THAT(grant, IsOk());
    EXPECT_EQ(grant->from->watermark(0), 300u);
  });
}

TEST(StoreServeTest, AReceiverWaitsForARelayThatWaitsForMemory) {
  StoreWorld w;
  const auto reading = w.Get(Id(1));
  std::optional<absl::StatusOr<net::ServeGrant>> answer;
  w.Run([&] {
    w.store().Serve({kOther, Id(1), kForeign, 1, "peer"},
                    [&](absl::StatusOr<net::ServeGrant> grant) { answer = std::move(grant); });
  });
  EXPECT_FALSE(answer.has_value());
  w.Shard(Assign(Id(1), kForeign, {.size = 1000, .plan = 4}));
  ASSERT_TRUE(answer.has_value());
  ASSERT_THAT(*answer, IsOk());
  EXPECT_EQ((*answer)->from->watermark(0), 0u);
  w.Run([&] { answer.reset(); });
}

TEST(StoreServeTest, AReceiverDoesNotWaitForAnObjectThatTheNodeDoesNotWant) {
  StoreWorld w;
  absl::Status answer;
  w.Run([&] {
    w.store().Serve({kOther, Id(1), kForeign, 1, "peer"},
                    [&](absl::StatusOr<net::ServeGrant> grant) { answer = grant.status(); });
  });
  EXPECT_THAT(answer, StatusIs(absl::StatusCode::kNotFound));
}

TEST(StoreServeTest, AReceiverWaitsForItsOwnGenerationBesideAnotherThatIsHere) {
  StoreWorld w(/*capacity=*/1500);
  const Generation second{kPeer, 8};
  const auto reading = w.Stream(Id(1));
  w.Shard(Assign(Id(1), kForeign, {.size = 1000, .plan = 4}));
  std::vector<absl::StatusOr<net::ServeGrant>> answers;
  const auto ask = [&](const Generation& generation) {
    w.Run([&] {
      w.store().Serve({kOther, Id(1), generation, 1, "peer"},
                      [&](absl::StatusOr<net::ServeGrant> grant) { answers.push_back(grant); });
    });
  };
  // The reader's view holds the old memory, so that of the new generation has to wait.
  w.Shard(Assign(Id(1), second, {.size = 1000, .plan = 5}));
  ask(second);
  EXPECT_TRUE(answers.empty());
  ask(kForeign);
  ASSERT_EQ(answers.size(), 1u);
  EXPECT_FALSE(answers[0].ok());
  EXPECT_THAT(w.Release(reading->view().pin), IsOk());
  ASSERT_EQ(answers.size(), 2u);
  EXPECT_THAT(answers[1], IsOk());
  w.Run([&] { answers.clear(); });
}

TEST(StoreServeTest, AReceiversPatienceEndsWithNotFound) {
  StoreWorld w;
  const auto reading = w.Get(Id(1));
  absl::Status answer;
  w.Run([&] {
    w.store().Serve({kOther, Id(1), kForeign, 1, "peer"},
                    [&](absl::StatusOr<net::ServeGrant> grant) { answer = grant.status(); });
  });
  w.Pass(StoreOptions().serve_patience - absl::Milliseconds(1));
  EXPECT_THAT(answer, IsOk());
  w.Pass(absl::Milliseconds(1));
  EXPECT_THAT(answer, StatusIs(absl::StatusCode::kNotFound));
}

TEST(StoreServeTest, AReceiverIsAnsweredBeforeItGivesUp) {
  StoreWorld w;
  const auto reading = w.Get(Id(1));
  absl::Status answer;
  net::ServeRequest request = {kOther, Id(1), kForeign, 1, "peer"};
  request.patience = absl::Milliseconds(20);
  w.Run([&] {
    w.store().Serve(request, [&](absl::StatusOr<net::ServeGrant> g) { answer = g.status(); });
  });
  w.Pass(absl::Milliseconds(19));
  EXPECT_THAT(answer, IsOk());
  w.Pass(absl::Milliseconds(1));
  EXPECT_THAT(answer, StatusIs(absl::StatusCode::kNotFound));
}

TEST(StoreServeTest, EachRefusalHasItsCode) {
  StoreWorld w;
  PutOptions options;
  options.id = Id(1);
  options.slices = 4;
  const Generation g = (**w.StartPut(options, Content(1000)))->generation;
  w.Run([&] {
    const auto code = [&](const ObjectId& id, const Generation& generation, uint64_t slices,
                          NodeKey receiver = kPeer) {
      return w.store().Serve({receiver, id, generation, slices, "peer"}).status().code();
    };
    EXPECT_EQ(code(Id(2), g, 1), absl::StatusCode::kNotFound);
    EXPECT_EQ(code(Id(1), kForeign, 1), absl::StatusCode::kAborted);
    EXPECT_EQ(code(Id(1), g, 0b10000), absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(code(Id(1), g, 0), absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(code(Id(1), g, 1, testing::kSelf), absl::StatusCode::kInvalidArgument);
    std::vector<net::ServeGrant> grants;
    for (int i = 0; i < 1024; ++i) grants.push_back(*w.store().Serve({kPeer, Id(1), g, 1, ""}));
    EXPECT_EQ(code(Id(1), g, 1), absl::StatusCode::kResourceExhausted);
  });
}

// ----------------------------------------------------------------------------------- requests

TEST(StoreRequestTest, RepliesAndDeadlinesEndRequests) {
  StoreWorld w;
  std::optional<absl::Status> deleted;
  std::optional<absl::StatusOr<ObjectStat>> stat;
  std::optional<absl::StatusOr<int>> broadcast;
  std::optional<absl::Status> late;
  const Instant soon = w.now() + absl::Seconds(1);
  w.Run([&] {
    w.store().Delete(w.client(), Id(1), soon, [&](absl::Status s) { deleted = s; });
    w.store().Stat(w.client(), Id(2), soon, [&](absl::StatusOr<ObjectStat> s) { stat = s; });
    w.store().Broadcast(w.client(), Id(3), {.nodes = {"*"}}, soon,
                        [&](absl::StatusOr<int> n) { broadcast = n; });
    w.store().Delete(w.client(), Id(4), soon, [&](absl::Status s) { late = s; });
  });
  v1::ShardMessage reply;
  reply.mutable_delete_reply()->set_request_id(w.Sent<v1::DeleteRequest>()[0].request_id());
  reply.mutable_delete_reply()->set_code(static_cast<int>(absl::StatusCode::kNotFound));
  reply.mutable_delete_reply()->set_message("nothing is adopted");
  w.Shard(reply);
  w.Shard(reply);  // again: ignored
  EXPECT_THAT(*deleted, StatusIs(absl::StatusCode::kNotFound, HasSubstr("adopted")));
  v1::ShardMessage query;
  query.mutable_query_reply()->set_request_id(w.Sent<v1::QueryRequest>()[0].request_id());
  query.mutable_query_reply()->set_known(true);
  query.mutable_query_reply()->set_complete_copies(3);
  query.mutable_query_reply()->mutable_info()->set_size_bytes(77);
  w.Shard(query);
  ASSERT_THAT(*stat, IsOk());
  EXPECT_EQ((*stat)->complete_copies, 3u);
  EXPECT_EQ((*stat)->size_bytes, 77u);
  v1::ShardMessage arrived;
  arrived.mutable_broadcast_reply()->set_request_id(w.Sent<v1::BroadcastRequest>()[0].request_id());
  arrived.mutable_broadcast_reply()->set_nodes(8);
  w.Shard(arrived);
  EXPECT_EQ(**broadcast, 8);
  w.Pass(absl::Seconds(1));
  EXPECT_THAT(*late, StatusIs(absl::StatusCode::kDeadlineExceeded));
}

TEST(StoreRequestTest, ALocalCompleteCopyCountsAlthoughARestartedShardDoesNotKnowIt) {
  StoreWorld w;
  ASSERT_THAT(w.Put(Id(1), "bytes"), IsOk());
  std::optional<absl::StatusOr<ObjectStat>> stat;
  w.Run([&] {
    w.store().Stat(w.client(), Id(1), Instant::Infinite(),
                   [&](absl::StatusOr<ObjectStat> s) { stat = s; });
  });
  v1::ShardMessage query;
  query.mutable_query_reply()->set_request_id(w.Sent<v1::QueryRequest>()[0].request_id());
  query.mutable_query_reply()->set_deleted(true);
  query.mutable_query_reply()->set_waiting(2);
  w.Shard(query);
  ASSERT_THAT(*stat, IsOk());
  EXPECT_TRUE((*stat)->known && (*stat)->complete && (*stat)->local_complete);
  EXPECT_FALSE((*stat)->deleted);
  EXPECT_EQ((*stat)->complete_copies, 1u);
  EXPECT_EQ((*stat)->size_bytes, 5u);
  EXPECT_EQ((*stat)->waiting, 2u);
}

TEST(StoreRequestTest, DrainEndsWhenNoShardHasObjectsLeft) {
  StoreWorld w(64 << 20, {}, /*num_shards=*/2);
  std::optional<absl::Status> drained;
  const Instant deadline = w.now() + absl::Seconds(9);
  w.Run([&] { w.store().Drain(deadline, [&](absl::Status s) { drained = s; }); });
  EXPECT_EQ(w.Sent<v1::DrainRequest>().size(), 2u);
  v1::ShardMessage status;
  status.mutable_drain_status()->set_objects_left(3);
  w.Shard(status, 0);
  status.mutable_drain_status()->set_objects_left(0);
  w.Shard(status, 1);
  EXPECT_FALSE(drained);
  w.Shard(status, 0);
  EXPECT_THAT(*drained, IsOk());
}

TEST(StoreRequestTest, AFetchToKeepMakesAPrimaryCopyWithoutAnyClient) {
  StoreWorld w;
  v1::ShardMessage fetch;
  fetch.mutable_fetch()->set_object_id(IdBytes(Id(1)));
  fetch.mutable_fetch()->set_keep(true);
  w.Shard(fetch);
  ASSERT_EQ(w.Sent<v1::Want>().size(), 1u);
  EXPECT_TRUE(w.Sent<v1::Want>()[0].keep());
  w.Shard(Assign(Id(1), kForeign, {.size = 100, .plan = 4, .keep = true}));
  w.Run([&] { w.pulls().Finish(0, Content(100)); });
  ASSERT_EQ(w.store().Copies().size(), 1u);
  EXPECT_TRUE(w.store().Copies()[0].primary);
  // One that is here already is kept from then on.
  w.PullCopy(Id(2), Content(50));
  fetch.mutable_fetch()->set_object_id(IdBytes(Id(2)));
  w.Shard(fetch);
  for (const auto& copy : w.store().Copies()) EXPECT_TRUE(copy.primary);
}

TEST(StoreRequestTest, AFetchOfALocalCopyIsConfirmedUnderItsPlan) {
  StoreWorld w;
  w.PullCopy(Id(1), Content(50));
  w.ForgetSent();
  v1::ShardMessage fetch;
  fetch.mutable_fetch()->set_object_id(IdBytes(Id(1)));
  fetch.mutable_fetch()->set_plan_id(77);
  w.Shard(fetch);
  const auto reports = w.Sent<v1::PullReport>();
  ASSERT_EQ(reports.size(), 1u);
  EXPECT_TRUE(reports[0].complete());
  EXPECT_EQ(reports[0].plan_id(), 77u);
}

TEST(StoreRequestTest, AnOnlyConfirmFetchOfAMissingObjectDoesNothing) {
  StoreWorld w;
  v1::ShardMessage fetch;
  fetch.mutable_fetch()->set_object_id(IdBytes(Id(1)));
  fetch.mutable_fetch()->set_plan_id(77);
  fetch.mutable_fetch()->set_only_confirm(true);
  w.Shard(fetch);
  EXPECT_TRUE(w.sent().empty());
}

TEST(StoreRequestTest, AFetchWithoutASenderEndsAfterAMinute) {
  StoreWorld w;
  v1::ShardMessage fetch;
  fetch.mutable_fetch()->set_object_id(IdBytes(Id(1)));
  w.Shard(fetch);
  w.Pass(absl::Seconds(59));
  EXPECT_TRUE(w.Sent<v1::Unwant>().empty());
  w.Pass(absl::Seconds(1));
  EXPECT_EQ(w.Sent<v1::Unwant>().size(), 1u);
}

TEST(StoreRequestTest, AClientsGetThatEndsDoesNotEndTheNodesOwnFetch) {
  StoreWorld w;
  v1::ShardMessage fetch;
  fetch.mutable_fetch()->set_object_id(IdBytes(Id(1)));
  w.Shard(fetch);
  const auto reading = w.Get(Id(1));
  w.Shard(Assign(Id(1), kForeign, {.size = 100, .plan = 4}));
  w.Cancel(reading->request);
  EXPECT_EQ(w.pulls().size(), 1u);
  w.Run([&] { w.pulls().Finish(0, Content(100)); });
  EXPECT_TRUE(w.store().ContainsLocally(Id(1)));
}

TEST(StoreRequestTest, AShardThatRefusesTheWantEndsTheGet) {
  StoreWorld w;
  const auto reading = w.Get(Id(1));
  w.Shard(Gone(Id(1), {}, v1::Gone::REFUSED));
  EXPECT_THAT(reading->status(), StatusIs(absl::StatusCode::kResourceExhausted));
  EXPECT_TRUE(w.Sent<v1::Unwant>().empty());
}

TEST(StoreRequestTest, TooManyRequestsOfOneClientAreRefused) {
  StoreOptions options;
  options.max_requests_per_client = 10;
  StoreWorld w(64 << 20, options);
  std::vector<std::shared_ptr<testing::Reading>> readings;
  for (int i = 0; i < 12; ++i) readings.push_back(w.Get(Id(i)));
  EXPECT_FALSE(readings[9]->answered());
  EXPECT_THAT(readings[11]->status(), StatusIs(absl::StatusCode::kResourceExhausted));
  const ClientId other = w.OpenClient();
  EXPECT_FALSE(w.Get(GetOptions{Id(1)}, other)->answered());
}

TEST(StoreRequestTest, TheRequestsAndPinsOfAClosedClientEndWithoutACall) {
  StoreWorld w;
  ASSERT_THAT(w.Put(Id(1), "bytes"), IsOk());
  const ClientId client = w.OpenClient();
  const auto held = w.Get(GetOptions{Id(1)}, client);
  const auto waiting = w.Get(GetOptions{Id(2)}, client);
  const auto posted = std::make_shared<testing::Reading>();
  w.Run([&] {
    GetEvents events;
    events.on_view = [posted](absl::StatusOr<View> view) { posted->views.push_back(view); };
    w.store().Get(client, GetOptions{Id(1)}, std::move(events));
    w.store().CloseClient(client, /*clean=*/false);
  });
  EXPECT_FALSE(waiting->answered());
  EXPECT_FALSE(posted->answered());
  EXPECT_EQ(w.store().stats().pins, 0u);
  EXPECT_EQ(w.Sent<v1::Unwant>().size(), 1u);
  // What it had mapped is not recycled.
  EXPECT_GE(w.memory().stats().condemned_bytes, 5u);
}

TEST(StoreRequestTest, MessagesThatMakeNoSenseAreIgnored) {
  StoreWorld w;
  const auto reading = w.Get(Id(1));
  w.Shard(v1::ShardMessage());
  w.Shard(Assign(Id(1), {}, {.size = 1, .plan = 1}));
  w.Shard(Assign(Id(1), kForeign, {.size = kMaxObjectBytes + 1, .plan = 1}));
  w.Shard(Assign(Id(1), kForeign, {.size = 1, .plan = 1, .sender = {}}));
  w.Shard(Assign(Id(1), kForeign, {.size = 1, .plan = 1, .slices = 2, .mask = 0b100}));
  w.Shard(Assign(Id(1), kForeign, {.size = 1, .plan = 0}));
  v1::ShardMessage deliver = Deliver(Id(1), kForeign, "bytes");
  deliver.mutable_deliver()->mutable_info()->set_size_bytes(6);
  w.Shard(deliver);
  deliver.mutable_deliver()->set_object_id("short");
  w.Shard(deliver);
  w.Shard(Gone(Id(1), {}, v1::Gone::DELETED));
  EXPECT_FALSE(reading->answered());
  EXPECT_EQ(w.pulls().started(), 0);
  w.Shard(Deliver(Id(1), kForeign, "good"));
  EXPECT_EQ(reading->bytes(), "good");
}

}  // namespace
}  // namespace phalanx::object_store
