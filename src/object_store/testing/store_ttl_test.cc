// The time to live of copies: what a node announces, counts and registers.
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "src/common/testing/status_matchers.h"
#include "src/directory/core/validate.h"
#include "src/object_store/testing/store_world.h"

namespace phalanx::object_store {
namespace {

using directory::TtlOf;
using phalanx::testing::IsOk;
using phalanx::testing::StatusIs;
using testing::Assign;
using testing::Deliver;
using testing::Gone;
using ::testing::HasSubstr;
using testing::Id;
using testing::kPeer;
using testing::StoreWorld;
using testing::Verdict;

constexpr absl::Duration kSecond = absl::Seconds(1);
const Generation kForeign{kPeer, 1};

class StoreTtlTest : public ::testing::Test {
 protected:
  absl::StatusOr<PutResult> Put(absl::Duration ttl) {
    PutOptions options;
    options.id = Id(1);
    options.ttl = ttl;
    const auto answer = w_.StartPut(options, "bytes");
    return answer->has_value() ? **answer : absl::UnknownError("not answered");
  }
  Generation Announced() {
    return directory::FromProto(w_.Sent<v1::AnnounceCreate>().at(0).generation());
  }
  // What the only copy registers in a new session.
  absl::Duration Registered() {
    w_.ForgetSent();
    w_.Run([&] { w_.channel().OnSession(0); });
    return TtlOf(w_.Sent<v1::RegisterCopy>().at(0).info());
  }
  v1::ShardMessage WithTtl(v1::ShardMessage message, absl::Duration ttl) {
    directory::SetTtl(ttl, message.has_assign() ? message.mutable_assign()->mutable_info()
                                                : message.mutable_deliver()->mutable_info());
    return message;
  }

  StoreWorld w_;
};

TEST_F(StoreTtlTest, AnnouncesTheTimeOfAPutAndOfAWriter) {
  ASSERT_THAT(Put(5 * kSecond), IsOk());
  EXPECT_EQ(TtlOf(w_.Sent<v1::AnnounceCreate>().at(0).info()), 5 * kSecond);
  PutOptions options;
  options.id = Id(2);
  options.ttl = 7 * kSecond;
  ASSERT_TRUE((*w_.StartCreate(options, 100))->ok());
  EXPECT_EQ(TtlOf(w_.Sent<v1::AnnounceCreate>().at(1).info()), 7 * kSecond);
}

TEST_F(StoreTtlTest, AnObjectWithoutATimeSendsNothing) {
  ASSERT_THAT(Put(absl::InfiniteDuration()), IsOk());
  EXPECT_EQ(w_.Sent<v1::AnnounceCreate>().at(0).info().ttl_ns(), 0u);
  w_.Shard(Verdict(Id(1), Announced(), v1::Verdict::ADOPTED));
  EXPECT_EQ(Registered(), absl::InfiniteDuration());
}

TEST_F(StoreTtlTest, RejectsATimeThatIsNotPositive) {
  for (const absl::Duration ttl : {absl::ZeroDuration(), -kSecond, -absl::InfiniteDuration()}) {
    EXPECT_THAT(Put(ttl), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("time to live")));
  }
}

TEST_F(StoreTtlTest, MoreThanTheProtocolsLongestIsInfinite) {
  ASSERT_THAT(Put(kMaxTtl + kSecond), IsOk());
  EXPECT_EQ(w_.Sent<v1::AnnounceCreate>().at(0).info().ttl_ns(), 0u);
}

TEST_F(StoreTtlTest, TheCreatorCountsFromTheVerdict) {
  ASSERT_THAT(Put(5 * kSecond), IsOk());
  const Generation generation = Announced();
  w_.Pass(2 * kSecond);
  // No shard is known to have adopted it.
  EXPECT_EQ(Registered(), 5 * kSecond);
  w_.Shard(Verdict(Id(1), generation, v1::Verdict::ADOPTED));
  w_.Pass(2 * kSecond);
  EXPECT_EQ(Registered(), 3 * kSecond);
  // A later verdict does not begin again.
  w_.Shard(Verdict(Id(1), generation, v1::Verdict::ADOPTED));
  w_.Pass(kSecond);
  EXPECT_EQ(Registered(), 2 * kSecond);
}

TEST_F(StoreTtlTest, ATimeThatHasPassedIsRegisteredAsTheShortest) {
  ASSERT_THAT(Put(kSecond), IsOk());
  w_.Shard(Verdict(Id(1), Announced(), v1::Verdict::ADOPTED));
  w_.Pass(5 * kSecond);
  EXPECT_EQ(Registered(), absl::Nanoseconds(1));
}

TEST_F(StoreTtlTest, ADeliveredCopyCountsFromTheDelivery) {
  w_.Get(Id(1));
  w_.Pass(kSecond);
  w_.Shard(WithTtl(Deliver(Id(1), kForeign, "bytes"), 5 * kSecond));
  w_.Pass(2 * kSecond);
  EXPECT_EQ(Registered(), 3 * kSecond);
}

TEST_F(StoreTtlTest, APulledCopyCountsFromTheAssignment) {
  w_.Get(Id(1));
  w_.Shard(WithTtl(Assign(Id(1), kForeign, {.size = 800}), 5 * kSecond));
  w_.Pass(2 * kSecond);
  EXPECT_EQ(Registered(), 3 * kSecond);
}

TEST_F(StoreTtlTest, StatReturnsWhatIsLeft) {
  ASSERT_THAT(Put(5 * kSecond), IsOk());
  std::optional<absl::StatusOr<ObjectStat>> stat;
  w_.Run([&] {
    w_.store().Stat(w_.client(), Id(1), Instant::Infinite(),
                    [&](absl::StatusOr<ObjectStat> found) { stat = std::move(found); }, {});
  });
  v1::ShardMessage message;
  v1::QueryReply& reply = *message.mutable_query_reply();
  reply.set_request_id(w_.Sent<v1::QueryRequest>().at(0).request_id());
  reply.set_known(true);
  reply.mutable_info()->set_size_bytes(5);
  directory::SetTtl(4 * kSecond, reply.mutable_info());
  w_.Shard(message);
  ASSERT_TRUE(stat.has_value() && stat->ok());
  EXPECT_EQ((*stat)->ttl, 4 * kSecond);
}

TEST_F(StoreTtlTest, TheErrorSaysThatTheTimeHadPassed) {
  const auto reading = w_.Get(Id(1));
  v1::ShardMessage gone = Gone(Id(1), kForeign, v1::Gone::DELETED);
  gone.mutable_gone()->set_expired(true);
  w_.Shard(gone);
  EXPECT_THAT(reading->status(),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("was deleted: its time to live")));
}

}  // namespace
}  // namespace phalanx::object_store
