// Many pulls of one peer that begin at the same time.
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "src/common/testing/status_matchers.h"
#include "src/net/plane/data_plane.h"
#include "src/net/plane/puller.h"
#include "src/net/testing/sim_plane.h"

namespace phalanx::net {
namespace {

using ::phalanx::testing::IsOk;
using ::phalanx::testing::StatusIs;
using testing::EmptyBuffer;
using testing::Gen;
using testing::Id;
using testing::SimPlane;
using testing::SimPlanes;
using testing::StartedPull;
using testing::WholeBuffer;

constexpr uint64_t kBytes = 1000;

sim::SimFabric::Options FastLinks() {
  sim::SimFabric::Options options;
  options.link = {.latency = absl::Microseconds(100), .bytes_per_second = 1e9};
  return options;
}

class DataPlaneCrowdTest : public ::testing::Test {
 protected:
  DataPlaneCrowdTest() {
    DataPlaneOptions counting;
    counting.handshake.nonce_bytes = [this](void* out, size_t size) {
      ++dials_;
      SystemRandomBytes(out, size);
    };
    sender_ = &world_.Add("a");
    receiver_ = &world_.Add("b", counting);
  }

  // Pulls of objects that the sender has.
  std::vector<StartedPull> PullMany(int count) {
    std::vector<StartedPull> pulls;
    for (int i = 0; i < count; ++i) {
      sender_->shelf.Put(Id(i), Gen(), WholeBuffer(kBytes));
      pulls.push_back(receiver_->Pull(*sender_, Id(i), EmptyBuffer(kBytes)));
    }
    return pulls;
  }

  SimPlanes world_{FastLinks()};
  SimPlane* sender_;
  SimPlane* receiver_;
  int dials_ = 0;
};

TEST_F(DataPlaneCrowdTest, AThousandPullsShareTheFirstConnections) {
  for (const StartedPull& pull : PullMany(1000)) {
    ASSERT_TRUE(world_.RunUntilDone(pull, absl::Seconds(1)));
    ASSERT_THAT(pull.status(), IsOk());
  }
  EXPECT_LE(dials_, 200);
  const int dials = dials_;
  for (const StartedPull& pull : PullMany(64)) {
    ASSERT_TRUE(world_.RunUntilDone(pull, absl::Seconds(1)));
  }
  EXPECT_EQ(dials_, dials) << "as many connections were kept";
}

TEST_F(DataPlaneCrowdTest, LongPullsDoNotKeepOthersFromConnecting) {
  std::vector<StartedPull> endless;
  for (int i = 0; i < 5 * kDialsAtOnce; ++i) {
    sender_->shelf.Put(Id(i), Gen(), EmptyBuffer(kBytes));
    endless.push_back(receiver_->Pull(*sender_, Id(i), EmptyBuffer(kBytes)));
  }
  sender_->shelf.Put(Id(1000), Gen(), WholeBuffer(kBytes));
  const StartedPull last = receiver_->Pull(*sender_, Id(1000), EmptyBuffer(kBytes));
  ASSERT_TRUE(world_.RunUntilDone(last, absl::Milliseconds(100)));
  EXPECT_THAT(last.status(), IsOk());
  for (const StartedPull& pull : endless) EXPECT_FALSE(pull.done());
}

TEST_F(DataPlaneCrowdTest, NoPullWaitsLongerThanTheConnectTimeout) {
  world_.fabric().PartitionBothWays("a", "b");
  const std::vector<StartedPull> pulls = PullMany(5 * kDialsAtOnce);
  world_.RunFor(absl::Milliseconds(2001));
  for (const StartedPull& pull : pulls) {
    ASSERT_TRUE(pull.done());
    EXPECT_THAT(pull.status(), StatusIs(absl::StatusCode::kDeadlineExceeded));
  }
  EXPECT_EQ(receiver_->plane().stats().connections, 0);
}

TEST_F(DataPlaneCrowdTest, ACancelledPullLetsTheNextOneDial) {
  world_.fabric().PartitionBothWays("a", "b");
  std::vector<StartedPull> pulls = PullMany(3 * kDialsAtOnce);
  world_.RunFor(absl::Milliseconds(10));
  for (int i = 0; i < 2 * kDialsAtOnce; ++i) receiver_->plane().CancelPull(pulls[i].handle);
  world_.RunFor(absl::Milliseconds(10));
  world_.fabric().HealAll();
  for (int i = 0; i < 3 * kDialsAtOnce; ++i) {
    ASSERT_TRUE(world_.RunUntilDone(pulls[i], absl::Seconds(2)));
    EXPECT_EQ(pulls[i].status().ok(), i >= 2 * kDialsAtOnce) << pulls[i].status();
  }
}

}  // namespace
}  // namespace phalanx::net
