// What a node does of scopes: it drops the copies of ended ones, refuses late Puts and Gets, and
// registers what it knows.
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
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class StoreScopeTest : public ::testing::Test {
 protected:
  explicit StoreScopeTest(int shards = 1) : w_(64 << 20, {}, shards) {}

  StoreWorld::PutAnswer Put(int i, const Scope& scope, bool wait_for_adoption = false) {
    PutOptions options;
    options.id = Id(i);
    options.scope = scope;
    options.wait_for_adoption = wait_for_adoption;
    return w_.StartPut(options, "bytes");
  }
  std::shared_ptr<Reading> Get(int i, const Scope& scope) {
    GetOptions options;
    options.id = Id(i);
    options.scope = scope;
    return w_.Get(options);
  }
  void Ended(const Scope& scope, int shard = 0) {
    v1::ShardMessage message;
    directory::SetScope(scope, message.mutable_scope_ended());
    w_.Shard(message, shard);
  }
  size_t Confirmed() {
    size_t confirmed = 0;
    for (const v1::NodeMessage& message : w_.sent()) confirmed += message.has_scope_confirm();
    return confirmed;
  }
  bool IsHere(int i) { return w_.store().ContainsLocally(Id(i)); }

  StoreWorld w_;
};

TEST_F(StoreScopeTest, TheEndDropsTheCopiesAndIsConfirmedWithoutATombstone) {
  for (int i = 0; i < 4; ++i) Put(i, {"job", static_cast<uint64_t>(i)});
  w_.ForgetSent();
  Ended({"job", 2});
  for (int i = 0; i < 4; ++i) EXPECT_EQ(IsHere(i), i == 3) << i;
  EXPECT_EQ(Confirmed(), 1u);
  EXPECT_THAT(w_.Sent<v1::DeleteConfirm>(), IsEmpty());
  w_.ForgetSent();
  w_.Run([&] { w_.channel().OnSession(0); });
  EXPECT_THAT(w_.Sent<v1::RegisterTombstone>(), IsEmpty());
  ASSERT_EQ(w_.Sent<v1::RegisterCopy>().size(), 1u);
  EXPECT_EQ(w_.Sent<v1::RegisterCopy>()[0].info().scope().number(), 3u);
  ASSERT_TRUE(w_.sent()[1].has_register_scope()) << "before the copies";
  EXPECT_EQ(w_.sent()[1].register_scope().scope().number(), 2u);
}

TEST_F(StoreScopeTest, ManyCopiesAreDroppedInSeveralTurnsBeforeTheConfirmation) {
  for (int i = 0; i < 1100; ++i) Put(i, {"job", 1});
  Ended({"job", 1});
  EXPECT_EQ(w_.store().stats().objects, 0u);
  EXPECT_EQ(Confirmed(), 1u);
}

TEST_F(StoreScopeTest, LatePutsAreRefused) {
  Ended({"job", 2});
  EXPECT_THAT(**Put(1, {"job", 2}),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("scope \"job\" 2 has ended")));
  EXPECT_THAT(**Put(1, {"job", 3}), IsOk());
  EXPECT_THAT(**Put(2, {"other", 1}), IsOk());
}

TEST_F(StoreScopeTest, APutThatWaitsForItsAdoptionEndsWithTheScope) {
  const StoreWorld::PutAnswer put = Put(1, {"job", 2}, /*wait_for_adoption=*/true);
  EXPECT_FALSE(put->has_value());
  w_.ForgetSent();
  Ended({"job", 2});
  ASSERT_TRUE(put->has_value());
  EXPECT_THAT(**put, StatusIs(absl::StatusCode::kNotFound, HasSubstr("has ended")));
  EXPECT_EQ(w_.Sent<v1::Withdraw>().size(), 1u) << "the shard may list it as one that stands by";
}

TEST_F(StoreScopeTest, AWritersSealReturnsThatTheScopeHasEnded) {
  PutOptions options;
  options.id = Id(1);
  options.scope = {"job", 2};
  const auto created = w_.StartCreate(options, 100);
  ASSERT_TRUE(created->has_value() && (*created)->ok());
  Ended({"job", 2});
  const StoreWorld::PutAnswer sealed = w_.StartSeal((**created)->writer);
  ASSERT_TRUE(sealed->has_value());
  EXPECT_THAT(**sealed, StatusIs(absl::StatusCode::kNotFound, HasSubstr("has ended")));
}

TEST_F(StoreScopeTest, GetsThatNameTheScopeEndAndOthersWait) {
  const auto scoped = Get(1, {"job", 2});
  const auto plain = Get(1, {});
  const auto later = Get(2, {"job", 3});
  ASSERT_EQ(w_.Sent<v1::Want>().size(), 2u);
  EXPECT_EQ(w_.Sent<v1::Want>()[0].scope().name(), "job");
  Ended({"job", 2});
  EXPECT_THAT(scoped->status(), StatusIs(absl::StatusCode::kNotFound, HasSubstr("has ended")));
  EXPECT_FALSE(plain->answered());
  EXPECT_FALSE(later->answered());
  EXPECT_THAT(w_.Sent<v1::Unwant>(), IsEmpty());
  EXPECT_THAT(Get(1, {"job", 1})->status(), StatusIs(absl::StatusCode::kNotFound));
}

TEST_F(StoreScopeTest, AGetThatNamesTheScopeLaterTellsTheShard) {
  const auto plain = Get(1, {});
  const auto scoped = Get(1, {"job", 2});
  ASSERT_EQ(w_.Sent<v1::Want>().size(), 2u);
  EXPECT_EQ(w_.Sent<v1::Want>()[1].scope().number(), 2u);
}

// One of the scopes can have ended, which only the shard knows.
TEST_F(StoreScopeTest, AGetThatNamesAnotherScopeThanEarlierOnesTellsTheShard) {
  const auto first = Get(1, {"job", 2});
  const auto again = Get(1, {"job", 2});
  ASSERT_EQ(w_.Sent<v1::Want>().size(), 1u);
  const auto other = Get(1, {"other", 7});
  const auto smaller = Get(1, {"other", 5});
  const auto plain = Get(1, {});
  ASSERT_EQ(w_.Sent<v1::Want>().size(), 3u);
  EXPECT_EQ(w_.Sent<v1::Want>()[1].scope().name(), "other");
  EXPECT_EQ(w_.Sent<v1::Want>()[2].scope().number(), 5u);
  Ended({"other", 5});
  EXPECT_THAT(smaller->status(), StatusIs(absl::StatusCode::kNotFound));
  EXPECT_FALSE(first->answered() || other->answered() || plain->answered());
  EXPECT_EQ(w_.Sent<v1::Want>().size(), 3u);
}

TEST_F(StoreScopeTest, APullOfTheScopeEnds) {
  const auto reading = Get(1, {});
  v1::ShardMessage assign = Assign(Id(1), Generation{kPeer, 7}, {.size = 100});
  directory::SetScope({"job", 2}, assign.mutable_assign()->mutable_info());
  w_.Shard(assign);
  Ended({"job", 2});
  EXPECT_THAT(reading->status(), StatusIs(absl::StatusCode::kNotFound, HasSubstr("has ended")));
  EXPECT_EQ(w_.store().stats().objects, 0u);
}

// Another generation, of another scope, is the object; this node's waits to be judged or stands by.
TEST_F(StoreScopeTest, TheEndOfAGenerationThatStandsByEndsNoGetOfTheObject) {
  const StoreWorld::PutAnswer put = Put(1, {"job", 2});
  ASSERT_THAT(**put, IsOk());
  w_.Shard(Verdict(Id(1), (**put)->generation, v1::Verdict::STANDBY));
  const auto reading = Get(1, {});
  ASSERT_EQ(w_.Sent<v1::Want>().size(), 1u);
  Ended({"job", 2});
  EXPECT_EQ(w_.store().stats().objects, 0u);
  EXPECT_FALSE(reading->answered());
  EXPECT_THAT(w_.Sent<v1::Unwant>(), IsEmpty());
  w_.Shard(Deliver(Id(1), Generation{kPeer, 7}, "other"));
  EXPECT_TRUE(reading->answered());
  EXPECT_THAT(reading->status(), IsOk());
}

// A shard can name the same scope once for each object that it refuses.
TEST_F(StoreScopeTest, EndsOfOneNameThatComeWhileCopiesAreDroppedAreConfirmedOnce) {
  for (int i = 0; i < 1100; ++i) Put(i, {"job", 2});
  w_.ForgetSent();
  w_.Run([&] {
    for (const uint64_t number : {2, 1}) {
      v1::ShardMessage message;
      directory::SetScope({"job", number}, message.mutable_scope_ended());
      w_.channel().OnMessage(0, message);
    }
  });
  EXPECT_EQ(w_.store().stats().objects, 0u);
  EXPECT_EQ(Confirmed(), 1u);
}

TEST_F(StoreScopeTest, ANodeWithALongSessionForgetsTheEndAfterTenMinutes) {
  Ended({"job", 2});
  w_.Pass(absl::Minutes(10) - absl::Seconds(1));
  EXPECT_THAT(**Put(1, {"job", 2}), StatusIs(absl::StatusCode::kNotFound));
  EXPECT_TRUE(w_.store().HasEnded({"job", 2}));
  w_.Pass(absl::Seconds(1));
  EXPECT_THAT(**Put(1, {"job", 2}), IsOk());
  EXPECT_FALSE(Get(2, {"job", 2})->answered());
  EXPECT_FALSE(w_.store().HasEnded({"job", 2}));
}

class TwoShards : public StoreScopeTest {
 protected:
  TwoShards() : StoreScopeTest(2) {}
  void Reply(RequestId request, int shard, absl::StatusCode code = absl::StatusCode::kOk) {
    v1::ShardMessage message;
    message.mutable_end_scope_reply()->set_request_id(request);
    message.mutable_end_scope_reply()->set_code(static_cast<int>(code));
    w_.Shard(message, shard);
  }
  RequestId End(Instant deadline = Instant::Infinite()) {
    RequestId request = 0;
    w_.Run([&] {
      request = w_.store().EndScope(w_.client(), {"job", 2}, deadline,
                                    [this](const absl::Status& done) { done_ = done; });
    });
    return request;
  }
  std::optional<absl::Status> done_;
};

TEST_F(TwoShards, AnEndIsAnsweredWhenEveryShardHasAnswered) {
  const RequestId request = End();
  Reply(request, 0);
  Reply(request, 0);
  EXPECT_FALSE(done_.has_value());
  w_.ForgetSent();
  w_.Run([&] { w_.channel().OnSession(0); });
  w_.Run([&] { w_.channel().OnSession(1); });
  int again = 0;
  for (const v1::NodeMessage& message : w_.sent()) again += message.has_end_scope_request() ? 1 : 0;
  EXPECT_EQ(again, 1) << "only to the shard that has not answered";
  Reply(request, 1);
  EXPECT_THAT(*done_, IsOk());
}

TEST_F(TwoShards, AnEndThatIsOverdueNamesTheShards) {
  const RequestId request = End(w_.now() + absl::Seconds(1));
  Reply(request, 0);
  w_.Pass(absl::Seconds(2));
  EXPECT_THAT(*done_, StatusIs(absl::StatusCode::kDeadlineExceeded, HasSubstr("shard 1")));
}

TEST_F(TwoShards, EachShardsEndDropsItsObjectsOnly) {
  for (int i = 0; i < 20; ++i) Put(i, {"job", 1});
  Ended({"job", 1}, 0);
  int left = 0;
  for (int i = 0; i < 20; ++i) {
    EXPECT_EQ(IsHere(i), w_.channel().ShardOf(Id(i)) == 1);
    left += IsHere(i) ? 1 : 0;
  }
  EXPECT_GT(left, 0);
  Ended({"job", 1}, 1);
  EXPECT_EQ(w_.store().stats().objects, 0u);
}

}  // namespace
}  // namespace phalanx::object_store::testing
