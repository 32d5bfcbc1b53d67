// Reductions by clients of real nodes, over real sockets and threads.
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "phalanx/client.h"
#include "src/common/testing/status_matchers.h"
#include "src/runtime/local_cluster.h"

namespace phalanx::runtime {
namespace {

using testing::IsOk;

constexpr absl::Duration kDeadline = absl::Seconds(60);

// Element i of the f32 that source `n` of so many consists of: sums of them are exact.
std::string Floats(int n, uint64_t count) {
  std::string bytes(4 * count, '\0');
  for (uint64_t i = 0; i < count; ++i) {
    const float value = static_cast<float>(i % 1000 + 10 * static_cast<uint64_t>(n));
    std::memcpy(bytes.data() + 4 * i, &value, 4);
  }
  return bytes;
}
std::string SumOfFloats(int sources, uint64_t count) {
  std::string bytes(4 * count, '\0');
  for (uint64_t i = 0; i < count; ++i) {
    float value = 0;
    for (int n = 0; n < sources; ++n) {
      value += static_cast<float>(i % 1000 + 10 * static_cast<uint64_t>(n));
    }
    std::memcpy(bytes.data() + 4 * i, &value, 4);
  }
  return bytes;
}

class LocalReduceTest : public ::testing::Test {
 protected:
  void Start(LocalClusterOptions options) {
    absl::StatusOr<std::unique_ptr<LocalCluster>> cluster = LocalCluster::Start(std::move(options));
    ASSERT_THAT(cluster, IsOk());
    cluster_ = *std::move(cluster);
    for (int node = 0; node < cluster_->nodes(); ++node) {
      ClientOptions client;
      client.address = cluster_->client_address(node);
      clients_.push_back(Client::Connect(client).value());
    }
  }
  ObjectId Source(int round, int n) {
    return ObjectId::FromName("source", absl::StrCat(round, "/", n));
  }
  // Every node has one; a Reduce by node `at` is asked for before half of them are there.
  void ReduceOnce(int round, int at, uint64_t count) {
    SCOPED_TRACE(absl::StrCat("round ", round));
    const int nodes = cluster_->nodes();
    std::vector<ObjectId> sources;
    for (int n = 0; n < nodes; ++n) sources.push_back(Source(round, n));
    const ObjectId target = ObjectId::FromName("target", absl::StrCat(round));
    for (int n = 0; n < nodes / 2; ++n) {
      ASSERT_THAT(clients_[n]->Put(sources[n], Floats(n, count)).Wait(kDeadline), IsOk());
    }
    auto reduced = clients_[at]->Reduce(target, sources);
    for (int n = nodes / 2; n < nodes; ++n) {
      ASSERT_THAT(clients_[n]->Put(sources[n], Floats(n, count)).Wait(kDeadline), IsOk());
    }
    ASSERT_THAT(reduced.Wait(kDeadline), IsOk());
    const std::string expected = SumOfFloats(nodes, count);
    for (int n = 0; n < nodes; ++n) {
      const absl::StatusOr<Buffer> got = clients_[n]->Get(target).Wait(kDeadline);
      ASSERT_THAT(got, IsOk());
      EXPECT_TRUE(got->view() == absl::string_view(expected)) << "on node " << n;
    }
  }

  std::unique_ptr<LocalCluster> cluster_;
  std::vector<std::shared_ptr<Client>> clients_;
};

TEST_F(LocalReduceTest, SumsOfAllSizesAreExact) {
  Start({.nodes = 5, .io_threads = 2});
  int round = 0;
  for (const uint64_t count : {1, 1000, 20'000, 300'000, 3'000'000}) {
    ReduceOnce(round, round % 5, count);
    ++round;
  }
}

TEST_F(LocalReduceTest, SourcesMayBeOfOtherShards) {
  Start({.shards = 3, .nodes = 4});
  for (int round = 0; round < 10; ++round) ReduceOnce(round, round % 4, 50'000);
}

// Small ones, trees and rings, each of sources of several shards.
TEST_F(LocalReduceTest, AResultHasTheMetadataOfTheFirstSourceThatHasAny) {
  Start({.shards = 3, .nodes = 4});
  int round = 0;
  for (const uint64_t count : {10, 50'000, 2'000'000}) {
    for (const bool all : {false, true}) {
      SCOPED_TRACE(absl::StrCat(count, " elements", all ? ", for all" : ""));
      std::vector<ObjectId> sources;
      for (int n = 0; n < 4; ++n) sources.push_back(Source(++round, n));
      for (int n = 3; n >= 0; --n) {
        PutOptions options;
        if (n > 0) options.metadata = absl::StrCat("of source ", n);
        ASSERT_THAT(clients_[n]->Put(sources[n], Floats(n, count), options).Wait(kDeadline),
                    IsOk());
      }
      const ObjectId target = ObjectId::FromName("target", absl::StrCat(round));
      if (all) {
        std::vector<Future<Buffer>> results;
        for (const auto& client : clients_) results.push_back(client->AllReduce(target, sources));
        for (auto& result : results) {
          const absl::StatusOr<Buffer> buffer = result.Wait(kDeadline);
          ASSERT_THAT(buffer, IsOk());
          EXPECT_EQ(buffer->metadata(), "of source 1");
        }
      } else {
        ASSERT_THAT(clients_[1]->Reduce(target, sources).Wait(kDeadline), IsOk());
      }
      for (const auto& client : clients_) {
        const absl::StatusOr<Buffer> buffer = client->Get(target).Wait(kDeadline);
        ASSERT_THAT(buffer, IsOk());
        EXPECT_EQ(buffer->metadata(), "of source 1");
        const absl::StatusOr<ObjectStatus> stat = client->Stat(target).Wait(kDeadline);
        ASSERT_THAT(stat, IsOk());
        EXPECT_EQ(stat->metadata, "of source 1");
      }
    }
  }
}

}  // namespace
}  // namespace phalanx::runtime
