#include "src/directory/placement/drain_manager.h"

#include <optional>
#include <vector>

#include "gtest/gtest.h"
#include "src/common/testing/status_matchers.h"
#include "src/directory/objects/object_fixture.h"

namespace phalanx::directory {
namespace {

using testing::kA;
using testing::kB;
using testing::kC;
using testing::ObjectFixture;

class DrainManagerTest : public ObjectFixture {
 protected:
  DrainManagerTest() {
    listeners_ = {&pulls_, &reductions_, &drains_manager_, &placements_};
    // Nodes report a capacity, so that the roomiest one is preferred.
    node(kA).info.set_capacity_bytes(100);
    node(kB).info.set_capacity_bytes(100);
    node(kC).info.set_capacity_bytes(1000);
  }

  // The nodes that were sent a Fetch since the last call.
  std::vector<NodeKey> Fetches() {
    drains_manager_.ReportProgress();
    std::vector<NodeKey> nodes;
    for (const Outgoing& out : outbox_.Take()) {
      if (out.message.has_fetch()) nodes.push_back(out.to);
      if (out.message.has_drain_status()) left_ = out.message.drain_status();
    }
    return nodes;
  }

  ~DrainManagerTest() override { PHALANX_EXPECT_OK(drains_manager_.CheckInvariants()); }

  DrainManager drains_manager_{context_, nodes_, outbox_, table_};
  v1::DrainStatus left_;  // as it was reported last
};

using Nodes = std::vector<NodeKey>;

TEST_F(DrainManagerTest, ASoleCopyIsFetchedByTheNodeWithTheMostRoom) {
  Create(kA, /*complete=*/true);
  EXPECT_TRUE(drains_manager_.OnDrain(node(kA)));
  EXPECT_EQ(Fetches(), Nodes{kC});
  EXPECT_EQ(left_.objects_left(), 1u);
  EXPECT_EQ(drains_manager_.StatusOf(kA).objects_left(), 1u);
  EXPECT_EQ(object().drain_target, kC);
  AddCompleteCopy(kC);
  EXPECT_EQ(Fetches(), Nodes{});
  EXPECT_EQ(left_.objects_left(), 0u);
  EXPECT_FALSE(object().drain_target.valid());
}

TEST_F(DrainManagerTest, AnObjectWithACopyElsewhereIsNotFetched) {
  Create(kA, /*complete=*/true);
  AddCompleteCopy(kB);
  drains_manager_.OnDrain(node(kA));
  EXPECT_EQ(Fetches(), Nodes{});
  EXPECT_EQ(left_.objects_left(), 0u);
}

TEST_F(DrainManagerTest, ANodeWithADeliveredCopyIsAskedFirst) {
  Create(kA, /*complete=*/true);
  AddCompleteCopy(kB, CopyState::kDelivered);
  drains_manager_.OnDrain(node(kA));
  EXPECT_EQ(Fetches(), Nodes{kB});
}

TEST_F(DrainManagerTest, ANodeThatRefusedIsNotAskedAgainBeforeAPause) {
  Create(kA, /*complete=*/true);
  drains_manager_.OnDrain(node(kA));
  ASSERT_EQ(Fetches(), Nodes{kC});
  drains_manager_.OnRefused(object(), kC);
  ASSERT_EQ(Fetches(), Nodes{kB});
  drains_manager_.OnRefused(object(), kB);
  EXPECT_EQ(Fetches(), Nodes{});
  // The refusals set the object's timer.
  Advance(absl::Milliseconds(100));
  table_.Tick();
  EXPECT_EQ(Fetches(), Nodes{kC});
}

TEST_F(DrainManagerTest, ATargetThatGoesDownIsReplaced) {
  Create(kA, /*complete=*/true);
  drains_manager_.OnDrain(node(kA));
  ASSERT_EQ(Fetches(), Nodes{kC});
  Down(kC);
  EXPECT_EQ(Fetches(), Nodes{kB});
}

TEST_F(DrainManagerTest, AnObjectWaitsUntilRoomIsFreed) {
  node(kB).info.set_used_bytes(100);
  node(kC).info.set_used_bytes(1000);
  Create(kA, /*complete=*/true);
  drains_manager_.OnDrain(node(kA));
  EXPECT_EQ(Fetches(), Nodes{});
  EXPECT_EQ(left_.message(), drains_manager_.StatusOf(kA).message());
  EXPECT_NE(left_.message().find("no other node has room"), std::string::npos);
  node(kB).info.set_used_bytes(10);
  drains_manager_.OnRoomFreed();
  EXPECT_EQ(Fetches(), Nodes{kB});
}

TEST_F(DrainManagerTest, ANewSessionDrainsOnlyIfItAsksAgain) {
  Create(kA, /*complete=*/true);
  drains_manager_.OnDrain(node(kA));
  ASSERT_EQ(Fetches(), Nodes{kC});
  EXPECT_FALSE(drains_manager_.OnDrain(node(kA)));
  drains_manager_.SessionBegins(node(kA));
  EXPECT_FALSE(node(kA).draining);
  EXPECT_FALSE(object().drain_target.valid());
  AddCompleteCopy(kC);
  EXPECT_EQ(Fetches(), Nodes{});
}

TEST_F(DrainManagerTest, AfterADrainThatANewSessionEndedTheNextOneFetchesAgain) {
  Create(kA, /*complete=*/true);
  drains_manager_.OnDrain(node(kA));
  ASSERT_EQ(Fetches(), Nodes{kC});
  drains_manager_.SessionBegins(node(kA));
  drains_manager_.OnDrain(node(kA));
  EXPECT_EQ(Fetches(), Nodes{kC});
}

TEST_F(DrainManagerTest, ATargetThatDrainsItselfIsReplaced) {
  Create(kA, /*complete=*/true);
  drains_manager_.OnDrain(node(kA));
  ASSERT_EQ(Fetches(), Nodes{kC});
  drains_manager_.OnDrain(node(kC));
  EXPECT_EQ(Fetches(), Nodes{kB});
  // Its fetch was under way, and its copy leaves with it.
  AddCompleteCopy(kC);
  EXPECT_EQ(object().drain_target, kB);
  AddCompleteCopy(kB);
  EXPECT_EQ(Fetches(), Nodes{});
  EXPECT_EQ(left_.objects_left(), 0u);
}

TEST_F(DrainManagerTest, ARefusalDoesNotOutliveTheDrain) {
  Create(kA, /*complete=*/true);
  drains_manager_.OnDrain(node(kA));
  ASSERT_EQ(Fetches(), Nodes{kC});
  drains_manager_.OnRefused(object(), kC);
  drains_manager_.SessionBegins(node(kA));
  drains_manager_.OnDrain(node(kA));
  EXPECT_EQ(Fetches(), Nodes{kC});
}

}  // namespace
}  // namespace phalanx::directory
