// Members of jobs on real nodes with real sockets, whose nodes and shards are killed.
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "phalanx/client.h"
#include "phalanx/job.h"
#include "src/common/testing/status_matchers.h"
#include "src/node/local_cluster.h"

namespace phalanx::runtime {
namespace {

using testing::IsOk;

constexpr absl::Duration kDeadline = absl::Seconds(60);
constexpr int kNodes = 3;

class LocalJobsTest : public ::testing::Test {
 protected:
  LocalJobsTest() {
    LocalClusterOptions options;
    options.nodes = kNodes;
    options.shards = 2;
    absl::StatusOr<std::unique_ptr<LocalCluster>> cluster = LocalCluster::Start(std::move(options));
    EXPECT_THAT(cluster, IsOk());
    cluster_ = *std::move(cluster);
  }
  std::shared_ptr<Client> Connect(int node) {
    ClientOptions options;
    options.address = cluster_->client_address(node);
    return Client::Connect(options).value();
  }
  // Every node has a task of the job; a client lives as long as its member.
  void JoinAll(const std::string& job) {
    for (int node = 0; node < kNodes; ++node) {
      clients_.push_back(Connect(node));
      absl::StatusOr<Membership> member =
          clients_.back()->Join(job, absl::StrCat("worker", node), {.world = kNodes});
      ASSERT_THAT(member, IsOk());
      members_.push_back(*std::move(member));
    }
    for (const Membership& member : members_) {
      EXPECT_EQ(member.life(), 0u);
      EXPECT_THAT(member.WaitForWorld(kDeadline), IsOk());
    }
  }
  // Waits until the first member sees the task in this state and life.
  void Await(int rank, MemberState state, uint64_t life) {
    for (uint64_t change = 0;;) {
      const Member seen = members_[0].Members()[static_cast<size_t>(rank)];
      if (seen.state == state && seen.life == life) return;
      PHALANX_ASSERT_OK_AND_ASSIGN(change, members_[0].WaitForChange(change, kDeadline));
    }
  }

  std::unique_ptr<LocalCluster> cluster_;
  std::vector<std::shared_ptr<Client>> clients_;
  std::vector<Membership> members_;
};

TEST_F(LocalJobsTest, AKilledClientIsSeenToDieAndItsTaskComesBack) {
  JoinAll("train");
  clients_[1]->Close();
  Await(1, MemberState::kDied, 0);
  const auto again = Connect(2);
  PHALANX_ASSERT_OK_AND_ASSIGN(const Membership next,
                               again->Join("train", "worker1", {.world = kNodes}));
  EXPECT_EQ(next.life(), 1u);
  EXPECT_EQ(next.rank(), 1);
  Await(1, MemberState::kLive, 1);
  EXPECT_EQ(members_[0].Members()[1].node, LocalCluster::NodeName(2));
}

TEST_F(LocalJobsTest, AKilledNodeTakesItsMembersAlong) {
  JoinAll("train");
  cluster_->KillNode(2);
  Await(2, MemberState::kDied, 0);
  EXPECT_TRUE(absl::IsUnavailable(members_[2].status()));
  EXPECT_THAT(cluster_->RestartNode(2), IsOk());
  const auto again = Connect(2);
  PHALANX_ASSERT_OK_AND_ASSIGN(const Membership next,
                               again->Join("train", "worker2", {.world = kNodes}));
  EXPECT_EQ(next.life(), 1u);
  Await(2, MemberState::kLive, 1);
}

TEST_F(LocalJobsTest, ShardsThatAreKilledForgetNoJob) {
  // One of them at least belongs to each shard.
  for (const char* job : {"train", "eval", "tune"}) {
    members_.clear();
    clients_.clear();
    JoinAll(job);
    for (int shard = 0; shard < 2; ++shard) {
      cluster_->KillShard(shard);
      ASSERT_THAT(cluster_->RestartShard(shard), IsOk());
    }
    const auto again = Connect(0);
    PHALANX_ASSERT_OK_AND_ASSIGN(const Membership next,
                                 again->Join(job, "worker1", {.world = kNodes}));
    EXPECT_EQ(next.life(), 1u);
    Await(1, MemberState::kLive, 1);
    EXPECT_THAT(members_[0].status(), IsOk());
    EXPECT_TRUE(absl::IsAborted(members_[1].WaitForChange(1 << 30, kDeadline).status()));
  }
}

}  // namespace
}  // namespace phalanx::runtime
