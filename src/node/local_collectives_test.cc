// Collectives of large objects by clients of real nodes, over real sockets and threads: late
// participants, and nodes that die.
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "phalanx/client.h"
#include "phalanx/collectives.h"
#include "src/common/testing/status_matchers.h"
#include "src/node/local_cluster.h"

namespace phalanx::runtime {
namespace {

using testing::IsOk;

constexpr absl::Duration kDeadline = absl::Seconds(60);
constexpr int kNodes = 5;
// The parts are large enough to be fetched from a neighbour, and their sizes differ.
constexpr uint64_t kCount = 2'000'003;

// Element i of source n, or of the sum of all.
int32_t Element(int n, uint64_t i) { return static_cast<int32_t>(i % 1000) * (n + 1) + n; }
std::string Source(int n) {
  std::string bytes(4 * kCount, '\0');
  for (uint64_t i = 0; i < kCount; ++i) {
    const int32_t value = Element(n, i);
    std::memcpy(bytes.data() + 4 * i, &value, 4);
  }
  return bytes;
}
std::string Sum() {
  std::string bytes(4 * kCount, '\0');
  for (uint64_t i = 0; i < kCount; ++i) {
    int32_t value = 0;
    for (int n = 0; n < kNodes; ++n) value += Element(n, i);
    std::memcpy(bytes.data() + 4 * i, &value, 4);
  }
  return bytes;
}

class LocalCollectivesTest : public ::testing::Test {
 protected:
  void SetUp() override {
    LocalClusterOptions options;
    options.nodes = kNodes;
    absl::StatusOr<std::unique_ptr<LocalCluster>> cluster = LocalCluster::Start(std::move(options));
    ASSERT_THAT(cluster, IsOk());
    cluster_ = *std::move(cluster);
    for (int n = 0; n < kNodes; ++n) clients_.push_back(Connect(n));
  }
  std::shared_ptr<Client> Connect(int n) {
    ClientOptions options;
    options.address = cluster_->client_address(n);
    return Client::Connect(options).value();
  }
  std::vector<ObjectId> Ids(absl::string_view name) {
    std::vector<ObjectId> ids;
    for (int n = 0; n < kNodes; ++n) ids.push_back(ObjectId::FromName(name, absl::StrCat(n)));
    return ids;
  }
  void Put(int n) {
    ASSERT_THAT(clients_[n]->Put(Ids("source")[n], Source(n)).Wait(kDeadline), IsOk());
  }
  Future<std::vector<Buffer>> Gather(int n) {
    return AllGather(*clients_[n], Ids("source"), static_cast<size_t>(n));
  }
  Future<Buffer> Reduce(int n) {
    ReduceOptions options;
    options.dtype = DType::kI32;
    return ReduceScatter(*clients_[n], Ids("part"), Ids("source"), static_cast<size_t>(n),
                         4 * kCount, options);
  }
  void ExpectAll(const Future<std::vector<Buffer>>& gathered) {
    const absl::StatusOr<std::vector<Buffer>> got = gathered.Wait(kDeadline);
    ASSERT_THAT(got, IsOk());
    for (int n = 0; n < kNodes; ++n) EXPECT_TRUE((*got)[n].view() == Source(n)) << n;
  }
  // Checks the parts that were reduced, one after the other.
  void ExpectSum(const std::vector<Future<Buffer>>& reduced) {
    std::string all;
    for (const Future<Buffer>& each : reduced) {
      const absl::StatusOr<Buffer> part = each.Wait(kDeadline);
      ASSERT_THAT(part, IsOk());
      absl::StrAppend(&all, part->view());
    }
    EXPECT_TRUE(all == Sum());
  }

  std::unique_ptr<LocalCluster> cluster_;
  std::vector<std::shared_ptr<Client>> clients_;
};

TEST_F(LocalCollectivesTest, ALateParticipantOfAnAllGatherGetsTheSame) {
  std::vector<Future<std::vector<Buffer>>> gathered;
  for (int n = 0; n < kNodes - 1; ++n) Put(n);
  // 4 is the neighbour of 3; it has neither put its object nor called AllGather.
  for (int n = 0; n < kNodes - 1; ++n) gathered.push_back(Gather(n));
  for (int n = 0; n < kNodes - 1; ++n) {
    EXPECT_THAT(clients_[n]->Get(Ids("source")[(n + 2) % (kNodes - 1)]).Wait(kDeadline), IsOk());
  }
  Put(kNodes - 1);
  gathered.push_back(Gather(kNodes - 1));
  for (const auto& each : gathered) ExpectAll(each);
}

TEST_F(LocalCollectivesTest, AnAllGatherContinuesWithoutADeadNeighbour) {
  for (int n = 0; n < kNodes; ++n) Put(n);
  // Another node also has a copy of node 2's object.
  ASSERT_THAT(clients_[0]->Get(Ids("source")[2]).Wait(kDeadline), IsOk());
  std::vector<Future<std::vector<Buffer>>> gathered;
  for (const int n : {1, 2, 0, 4, 3}) gathered.push_back(Gather(n));
  cluster_->KillNode(2);
  // Node 1 can have finished before node 2 died.
  gathered[1].Wait(kDeadline).status().IgnoreError();
  for (const size_t n : {0, 2, 3, 4}) ExpectAll(gathered[n]);
}

TEST_F(LocalCollectivesTest, AReduceScatterResultCanBeGatheredAndDeleted) {
  std::vector<Future<Buffer>> reduced;
  for (int n = 0; n < kNodes; ++n) {
    Put(n);
    reduced.push_back(Reduce(n));
  }
  ExpectSum(reduced);
  const auto all = AllGather(*clients_[3], Ids("part"), 3).Wait(kDeadline);
  ASSERT_THAT(all, IsOk());
  std::string gathered;
  for (const Buffer& part : *all) absl::StrAppend(&gathered, part.view());
  EXPECT_TRUE(gathered == Sum());
  for (const char* name : {"part", "source"}) {
    for (const ObjectId& id : Ids(name)) {
      ASSERT_THAT(clients_[0]->Delete(id).Wait(kDeadline), IsOk());
      EXPECT_FALSE(clients_[1]->Contains(id).Wait(kDeadline).value());
    }
  }
}

TEST_F(LocalCollectivesTest, AReduceScatterContinuesWhenAKilledTaskRestarts) {
  for (int n = 0; n < kNodes; ++n) Put(n);
  std::vector<Future<Buffer>> reduced(kNodes);
  for (const int n : {0, 1, 3, 4}) reduced[n] = Reduce(n);
  cluster_->KillNode(2);
  ASSERT_THAT(cluster_->RestartNode(2), IsOk());
  clients_[2] = Connect(2);
  Put(2);
  reduced[2] = Reduce(2);
  ExpectSum(reduced);
}

}  // namespace
}  // namespace phalanx::runtime
