// Reductions by clients of real nodes, over real sockets and threads.
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "phalanx/client.h"
#include "src/common/testing/status_matchers.h"
#include "src/node/local_cluster.h"

namespace phalanx::runtime {
namespace {

using testing::IsOk;
using testing::StatusIs;

constexpr absl::Duration kDeadline = absl::Seconds(60);

// Element i of the f32 elements of source `n`. Their values are small, so sums are exact.
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
  // Every node has one source. Node `at` calls Reduce before half of the sources exist.
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

TEST_F(LocalReduceTest, SourcesCanBeOnOtherShards) {
  Start({.shards = 3, .nodes = 4});
  for (int round = 0; round < 10; ++round) ReduceOnce(round, round % 4, 50'000);
}

// Small objects, trees and rings, each with sources on several shards.
TEST_F(LocalReduceTest, TheResultHasTheMetadataOfTheFirstSourceWithMetadata) {
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

// The first half of the bytes are floats; the others are 16-bit integers that carry, and a count at
// the end.
std::string Mixed(int n, uint64_t half) {
  std::string bytes(2 * half + 8, '\0');
  for (uint64_t at = 0; at < half; at += 4) {
    const float value = static_cast<float>(n * 1000 + static_cast<int>(at % 997));
    std::memcpy(bytes.data() + at, &value, 4);
  }
  for (uint64_t at = half; at < 2 * half; at += 2) {
    const uint16_t value = static_cast<uint16_t>(0xfff0 + n + at % 31);
    std::memcpy(bytes.data() + at, &value, 2);
  }
  const int64_t count = -5 + n;
  std::memcpy(bytes.data() + 2 * half, &count, 8);
  return bytes;
}

template <typename T>
void ExpectSums(absl::string_view result, const std::vector<std::string>& sources, uint64_t begin,
                uint64_t end) {
  const auto at = [](absl::string_view bytes, uint64_t place) {
    T value;
    std::memcpy(&value, bytes.data() + place, sizeof(T));
    return value;
  };
  for (uint64_t place = begin; place < end; place += sizeof(T)) {
    T sum = 0;
    for (const std::string& source : sources) sum = static_cast<T>(sum + at(source, place));
    ASSERT_EQ(at(result, place), sum) << place;
  }
}

// With inline bytes, with trees and with a ring.
TEST_F(LocalReduceTest, FoldsRunsOfSeveralTypesEachInItsType) {
  Start({.shards = 2, .nodes = 4});
  int round = 0;
  for (const uint64_t half : {uint64_t{64}, uint64_t{100'032}, uint64_t{4'000'000}}) {
    for (const bool all : {false, true}) {
      SCOPED_TRACE(absl::StrCat(half, " bytes", all ? ", for all" : ""));
      std::vector<ObjectId> sources;
      std::vector<std::string> contents;
      for (int n = 0; n < 4; ++n) {
        sources.push_back(Source(++round, n));
        contents.push_back(Mixed(n, half));
        ASSERT_THAT(clients_[n]->Put(sources[n], contents[n]).Wait(kDeadline), IsOk());
      }
      ReduceOptions options;
      options.runs = {{half, DType::kF32}, {2 * half, DType::kI16}, {2 * half + 8, DType::kI64}};
      const ObjectId target = ObjectId::FromName("target", absl::StrCat(round));
      std::vector<Future<Buffer>> results;
      if (!all) {
        ASSERT_THAT(clients_[1]->Reduce(target, sources, options).Wait(kDeadline), IsOk());
      }
      for (const auto& client : clients_) {
        results.push_back(all ? client->AllReduce(target, sources, options) : client->Get(target));
      }
      for (auto& result : results) {
        const absl::StatusOr<Buffer> buffer = result.Wait(kDeadline);
        ASSERT_THAT(buffer, IsOk());
        ASSERT_EQ(buffer->size(), 2 * half + 8);
        const absl::string_view bytes(buffer->data(), buffer->size());
        ExpectSums<float>(bytes, contents, 0, half);
        ExpectSums<uint16_t>(bytes, contents, half, 2 * half);
        ExpectSums<int64_t>(bytes, contents, 2 * half, 2 * half + 8);
      }
    }
  }
}

TEST_F(LocalReduceTest, RejectsSourcesOfAnotherSizeThanTheRuns) {
  Start({.shards = 1, .nodes = 2});
  std::vector<ObjectId> sources = {Source(1, 0), Source(1, 1)};
  for (int n = 0; n < 2; ++n) {
    ASSERT_THAT(clients_[n]->Put(sources[n], Mixed(n, 128)).Wait(kDeadline), IsOk());
  }
  ReduceOptions options;
  options.runs = {{64, DType::kF32}, {128, DType::kI16}};
  EXPECT_THAT(
      clients_[0]->Reduce(ObjectId::FromName("target", "x"), sources, options).Wait(kDeadline),
      StatusIs(absl::StatusCode::kInvalidArgument,
               ::testing::HasSubstr("no whole number of runs of f32, i16")));
}

}  // namespace
}  // namespace phalanx::runtime
