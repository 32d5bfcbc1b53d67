#include "src/node/local_cluster.h"

#include <future>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "phalanx/client.h"
#include "src/common/testing/status_matchers.h"

namespace phalanx::runtime {
namespace {

using testing::StatusIs;

constexpr absl::Duration kDeadline = absl::Seconds(60);

// Byte i of object `seed`.
std::string Pattern(size_t size, size_t seed) {
  std::string bytes(size, '\0');
  for (size_t i = 0; i < size; ++i) bytes[i] = static_cast<char>(i * 131 + seed * 7 + i / 257);
  return bytes;
}

class LocalClusterTest : public ::testing::Test {
 protected:
  void Start(LocalClusterOptions options) {
    absl::StatusOr<std::unique_ptr<LocalCluster>> cluster = LocalCluster::Start(std::move(options));
    ASSERT_THAT(cluster, testing::IsOk());
    cluster_ = *std::move(cluster);
  }
  std::shared_ptr<Client> Connect(int node) {
    ClientOptions options;
    options.address = cluster_->client_address(node);
    absl::StatusOr<std::shared_ptr<Client>> client = Client::Connect(options);
    EXPECT_THAT(client, testing::IsOk());
    return client.ok() ? *client : nullptr;
  }
  void Put(int node, const ObjectId& id, const std::string& bytes) {
    PutOptions options;
    options.wait_for_adoption = true;
    EXPECT_THAT(Connect(node)->Put(id, bytes, options).Wait(kDeadline), testing::IsOk());
  }
  void ExpectGet(int node, const ObjectId& id, const std::string& bytes) {
    const std::shared_ptr<Client> client = Connect(node);
    const absl::StatusOr<Buffer> got = client->Get(id).Wait(kDeadline);
    ASSERT_THAT(got, testing::IsOk());
    EXPECT_TRUE(got->view() == absl::string_view(bytes)) << "other bytes, " << got->size();
  }

  std::unique_ptr<LocalCluster> cluster_;
};

TEST_F(LocalClusterTest, EveryNodeCanGetAnObject) {
  Start({.nodes = 4});
  const ObjectId id = ObjectId::FromName("test", "one");
  const std::string bytes = Pattern(3 << 20, 1);
  Put(0, id, bytes);
  for (int node = 0; node < 4; ++node) ExpectGet(node, id, bytes);
}

TEST_F(LocalClusterTest, ObjectsAreSpreadOverShards) {
  Start({.shards = 3, .nodes = 2});
  for (size_t i = 0; i < 20; ++i) {
    const ObjectId id = ObjectId::FromName("test", absl::StrCat(i));
    Put(0, id, Pattern(1000 * i, i));
    ExpectGet(1, id, Pattern(1000 * i, i));
  }
}

TEST_F(LocalClusterTest, AnObjectIsDeletedWhenItsTimeToLiveHasPassed) {
  Start({.nodes = 2});
  const ObjectId id = ObjectId::FromName("test", "brief");
  PutOptions options;
  options.ttl = absl::Milliseconds(500);
  options.wait_for_adoption = true;
  EXPECT_THAT(Connect(0)->Put(id, Pattern(2 << 20, 1), options).Wait(kDeadline), testing::IsOk());
  for (int node = 0; node < 2; ++node) {
    const std::shared_ptr<Client> client = Connect(node);
    absl::Status end;
    while (end.ok()) end = client->Get(id).Wait(kDeadline).status();
    EXPECT_THAT(end, StatusIs(absl::StatusCode::kNotFound));
    EXPECT_THAT(end.message(), ::testing::HasSubstr("time to live"));
  }
}

TEST_F(LocalClusterTest, StatusHasTheRestOfATimeToLive) {
  Start({.shards = 2, .nodes = 2});
  const ObjectId id = ObjectId::FromName("test", "long");
  PutOptions options;
  options.ttl = absl::Hours(1);
  options.wait_for_adoption = true;
  EXPECT_THAT(Connect(0)->Put(id, "x", options).Wait(kDeadline), testing::IsOk());
  const absl::StatusOr<ObjectStatus> status = Connect(1)->Stat(id).Wait(kDeadline);
  ASSERT_THAT(status, testing::IsOk());
  EXPECT_LE(status->ttl, absl::Hours(1));
  EXPECT_GT(status->ttl, absl::Minutes(50));
  const ObjectId other = ObjectId::FromName("test", "endless");
  Put(0, other, "x");
  const absl::StatusOr<ObjectStatus> endless = Connect(1)->Stat(other).Wait(kDeadline);
  ASSERT_THAT(endless, testing::IsOk());
  EXPECT_EQ(endless->ttl, absl::InfiniteDuration());
}

TEST_F(LocalClusterTest, AKilledNodeCanBeStartedAgain) {
  Start({.nodes = 2});
  const ObjectId id = ObjectId::FromName("test", "kept");
  const std::string bytes = Pattern(2 << 20, 1);
  Put(0, id, bytes);
  ExpectGet(1, id, bytes);
  cluster_->KillNode(0);
  EXPECT_FALSE(cluster_->node_runs(0));
  ExpectGet(1, id, bytes);
  PHALANX_ASSERT_OK(cluster_->RestartNode(0));
  ExpectGet(0, id, bytes);
}

TEST_F(LocalClusterTest, ARestartedShardRelearnsItsObjects) {
  Start({.nodes = 2});
  const ObjectId id = ObjectId::FromName("test", "kept");
  const std::string bytes = Pattern(2 << 20, 1);
  Put(0, id, bytes);
  cluster_->KillShard(0);
  PHALANX_ASSERT_OK(cluster_->RestartShard(0));
  ExpectGet(1, id, bytes);
}

TEST_F(LocalClusterTest, ClientsOfADeadNodeGetUnavailable) {
  Start({.nodes = 1});
  const std::shared_ptr<Client> client = Connect(0);
  const Future<Buffer> get = client->Get(ObjectId::FromName("test", "never"));
  cluster_->KillNode(0);
  EXPECT_THAT(get.Wait(kDeadline), StatusIs(absl::StatusCode::kUnavailable));
}

TEST_F(LocalClusterTest, MembersShareTheSecret) {
  Start({.nodes = 2, .secret = "correct horse"});
  const ObjectId id = ObjectId::FromName("test", "secret");
  const std::string bytes = Pattern(200'000, 1);
  Put(0, id, bytes);
  ExpectGet(1, id, bytes);
}

TEST_F(LocalClusterTest, ANodeWithAnotherSecretCannotJoin) {
  Start({.nodes = 2, .secret = "correct horse", .configure_node = [](int node, NodeConfig& config) {
           if (node == 1) config.node.secret = "battery staple";
         }});
  const ObjectId id = ObjectId::FromName("test", "secret");
  Put(0, id, "bytes");
  GetOptions options;
  options.timeout = absl::Milliseconds(300);
  EXPECT_THAT(Connect(1)->Get(id, options).Wait(kDeadline),
              StatusIs(absl::StatusCode::kDeadlineExceeded));
}

TEST_F(LocalClusterTest, StoresAreSoundWhileTheyWork) {
  Start({.nodes = 3});
  std::vector<ObjectId> ids;
  for (size_t i = 0; i < 10; ++i) {
    ids.push_back(ObjectId::FromName("test", absl::StrCat(i)));
    Put(static_cast<int>(i % 3), ids.back(), Pattern(100'000, i));
  }
  const std::shared_ptr<Client> client = Connect(2);
  PHALANX_ASSERT_OK(client->GetMany(ids).Wait(kDeadline).status());
  for (int node = 0; node < 3; ++node) {
    absl::Status sound;
    cluster_->OnNode(node, [&sound](Node& each) { sound = each.store().CheckInvariants(); });
    PHALANX_EXPECT_OK(sound);
  }
}

TEST(LocalClusterOptionsTest, AClusterHasAShard) {
  EXPECT_THAT(LocalCluster::Start({.shards = 0}).status(),
              StatusIs(absl::StatusCode::kInvalidArgument));
}

}  // namespace
}  // namespace phalanx::runtime
