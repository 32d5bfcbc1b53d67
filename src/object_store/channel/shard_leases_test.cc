#include "src/object_store/channel/shard_leases.h"

#include <array>

#include "gtest/gtest.h"
#include "src/common/ids/random_id.h"
#include "src/common/ids/shard_of.h"

namespace phalanx::object_store {
namespace {

constexpr absl::Duration kLease = absl::Seconds(2);

Instant At(double seconds) { return Instant::FromNanos(1'000'000'000) + absl::Seconds(seconds); }

const ObjectId kName = ObjectId::FromName("test", "x");
const ObjectId kDrawn = RandomIdOf(std::array<uint8_t, 16>{7});

TEST(ShardLeasesTest, ANodeThatNoShardKnowsServesEverything) {
  const ShardLeases leases(1);
  EXPECT_TRUE(leases.Serves(kName, At(1e6)));
}

TEST(ShardLeasesTest, TheLeaseEndsBeforeTheShardCountsItAsEnded) {
  ShardLeases leases(1);
  EXPECT_FALSE(leases.BeginSession(0, At(0)));
  leases.Heard(0, At(0), kLease);
  EXPECT_TRUE(leases.Serves(kName, At(0)));
  EXPECT_TRUE(leases.Serves(kName, At(1.93)));
  EXPECT_FALSE(leases.Serves(kName, At(1.94)));
  leases.Heard(0, At(1.5), kLease);
  EXPECT_TRUE(leases.Serves(kName, At(3.4)));
}

TEST(ShardLeasesTest, DrawnIdsNeedNoLease) {
  ShardLeases leases(1);
  leases.BeginSession(0, At(0));
  leases.Heard(0, At(0), kLease);
  EXPECT_FALSE(leases.Serves(kName, At(100)));
  EXPECT_TRUE(leases.Serves(kDrawn, At(100)));
}

TEST(ShardLeasesTest, ALeaseThatHasNotEndedOutlivesItsSession) {
  ShardLeases leases(1);
  leases.BeginSession(0, At(0));
  leases.Heard(0, At(0), kLease);
  EXPECT_FALSE(leases.BeginSession(0, At(1)));
  EXPECT_TRUE(leases.Serves(kName, At(1.9)));
}

TEST(ShardLeasesTest, ANewSessionExtendsTheLeaseOnlyWhenItIsRegistered) {
  ShardLeases leases(1);
  leases.BeginSession(0, At(0));
  leases.Heard(0, At(0), kLease);
  EXPECT_TRUE(leases.BeginSession(0, At(3))) << "the lease had ended";
  leases.Heard(0, At(3), kLease);
  EXPECT_FALSE(leases.Serves(kName, At(3.1)));
  leases.Registered(0);
  EXPECT_TRUE(leases.Serves(kName, At(3.1)));
  EXPECT_FALSE(leases.Serves(kName, At(5)));
  // An answer of an earlier time, which arrives late, shortens nothing.
  leases.Heard(0, At(3.5), kLease);
  leases.Heard(0, At(3.2), kLease);
  EXPECT_TRUE(leases.Serves(kName, At(5.4)));
}

TEST(ShardLeasesTest, CallsAreNotAnsweredBeforeTheRegistrationOfANewSessionIsOver) {
  ShardLeases leases(2);
  leases.BeginSession(1, At(0));
  leases.Heard(1, At(1), kLease);
  EXPECT_TRUE(leases.Confirmed(1, At(2.9)));
  EXPECT_FALSE(leases.Confirmed(1, At(3)));
  // An answer that was under way when this process was stopped is as old as what it answers.
  leases.Heard(1, At(0.5), kLease);
  EXPECT_FALSE(leases.Confirmed(1, At(3)));
  leases.Heard(1, At(3), kLease);
  EXPECT_TRUE(leases.Confirmed(1, At(3)));
  leases.BeginSession(1, At(3.1));
  leases.Heard(1, At(3.1), kLease);
  EXPECT_FALSE(leases.Confirmed(1, At(3.2)));
  leases.Registered(1);
  EXPECT_TRUE(leases.Confirmed(1, At(3.2)));
  EXPECT_FALSE(leases.Confirmed(1, At(5.1)));
}

TEST(ShardLeasesTest, EachShardGrantsTheLeaseOfItsOwnObjects) {
  ShardLeases leases(2);
  const int other = 1 - ShardOf(kName, 2);
  for (const int shard : {0, 1}) leases.BeginSession(shard, At(0));
  leases.Heard(other, At(10), kLease);
  leases.Heard(1 - other, At(0), kLease);
  EXPECT_FALSE(leases.Serves(kName, At(10)));
  leases.Heard(1 - other, At(10), kLease);
  EXPECT_TRUE(leases.Serves(kName, At(10)));
}

}  // namespace
}  // namespace phalanx::object_store
