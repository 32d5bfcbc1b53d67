// Groups of clients of real nodes with real sockets.
#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "phalanx/client.h"
#include "phalanx/group.h"
#include "phalanx/job.h"
#include "src/common/testing/status_matchers.h"
#include "src/node/local_cluster.h"

namespace phalanx::runtime {
namespace {

using testing::IsOk;

constexpr absl::Duration kDeadline = absl::Seconds(60);

class LocalGroupsTest : public ::testing::Test {
 protected:
  // `members` on `nodes` nodes; the k-th is on node k % nodes.
  void Make(int nodes, int members, GroupOptions options = {.timeout = kDeadline}) {
    Make(nodes, members, members, options);
  }
  // The k-th member is of client k % clients, which is on node k % nodes.
  void Make(int nodes, int clients, int members, GroupOptions options) {
    LocalClusterOptions cluster_options;
    cluster_options.nodes = nodes;
    absl::StatusOr<std::unique_ptr<LocalCluster>> cluster =
        LocalCluster::Start(std::move(cluster_options));
    ASSERT_THAT(cluster, IsOk());
    cluster_ = *std::move(cluster);
    for (int client = 0; client < clients; ++client) {
      ClientOptions client_options;
      client_options.address = cluster_->client_address(client % nodes);
      clients_.push_back(Client::Connect(client_options).value());
    }
    for (int rank = 0; rank < members; ++rank) {
      JoinOptions join;
      join.world = members;
      absl::StatusOr<Membership> member = clients_[static_cast<size_t>(rank % clients)]->Join(
          "train", absl::StrCat("worker", rank), join);
      ASSERT_THAT(member, IsOk());
      groups_.emplace_back(*member, options);
      members_.push_back(*std::move(member));
    }
  }
  template <typename Call>
  void ForAll(Call call) {
    std::vector<Future<Done>> calls;
    for (size_t rank = 0; rank < groups_.size(); ++rank) calls.push_back(call(rank));
    for (size_t rank = 0; rank < groups_.size(); ++rank) {
      ASSERT_THAT(calls[rank].Wait(kDeadline), IsOk()) << "rank " << rank;
    }
  }

  std::unique_ptr<LocalCluster> cluster_;
  std::vector<std::shared_ptr<Client>> clients_;
  std::vector<Membership> members_;
  std::vector<Group> groups_;
};

TEST_F(LocalGroupsTest, SumsOfAllSizesAreRightOnAllMembers) {
  Make(3, 4);
  for (const size_t count : {1, 100, 10'000, 50'000, 1'000'000}) {
    for (int round = 0; round < 3; ++round) {
      std::vector<std::vector<float>> vectors(4);
      for (size_t rank = 0; rank < 4; ++rank) {
        for (size_t i = 0; i < count; ++i) {
          vectors[rank].push_back(static_cast<float>(i % 100 + rank + static_cast<size_t>(round)));
        }
      }
      ForAll([&](size_t rank) { return groups_[rank].AllReduce(absl::MakeSpan(vectors[rank])); });
      for (size_t rank = 0; rank < 4; ++rank) {
        for (size_t i = 0; i < count; ++i) {
          ASSERT_EQ(vectors[rank][i], static_cast<float>(4 * (i % 100 + size_t(round)) + 6));
        }
      }
    }
  }
  EXPECT_EQ(groups_[0].calls(), 15u);
  EXPECT_EQ(groups_[0].members_of_last_call(), 4);
}

TEST_F(LocalGroupsTest, EveryKindWorks) {
  Make(2, 3);
  for (const size_t count : {4, 60'000}) {
    std::vector<std::vector<int64_t>> in(3), out(3), all(3, std::vector<int64_t>(3 * count));
    for (size_t rank = 0; rank < 3; ++rank) {
      in[rank].assign(count, static_cast<int64_t>(rank + 1));
      out[rank].assign(count, 0);
    }
    ForAll([&](size_t rank) {
      return groups_[rank].AllGather(in[rank].data(), count * 8, all[rank].data(), 3 * count * 8);
    });
    for (size_t i = 0; i < 3 * count; ++i) {
      ASSERT_EQ(all[1][i], static_cast<int64_t>(i / count + 1));
    }
    ForAll([&](size_t rank) {
      return groups_[rank].ReduceScatter(absl::MakeConstSpan(all[rank]), absl::MakeSpan(out[rank]));
    });
    EXPECT_EQ(out[2], std::vector<int64_t>(count, 9));
    ForAll([&](size_t rank) {
      return groups_[rank].Broadcast(1, in[rank].data(), count * sizeof(int64_t));
    });
    for (size_t rank = 0; rank < 3; ++rank) ASSERT_EQ(in[rank], std::vector<int64_t>(count, 2));
    ForAll([&](size_t rank) { return groups_[rank].Reduce(2, absl::MakeSpan(in[rank])); });
    EXPECT_EQ(in[0], std::vector<int64_t>(count, 2));
    EXPECT_EQ(in[2], std::vector<int64_t>(count, 6));
    std::vector<std::vector<int64_t>> mixed(3, std::vector<int64_t>(3 * count));
    ForAll([&](size_t rank) {
      return groups_[rank].AllToAll(all[rank].data(), 3 * count * 8, mixed[rank].data(),
                                    3 * count * 8);
    });
    EXPECT_EQ(mixed[0], std::vector<int64_t>(3 * count, 1));
    ForAll([&](size_t rank) { return groups_[rank].Barrier(); });
  }
}

TEST_F(LocalGroupsTest, MembersThatDifferGetAnErrorThatNamesBothSides) {
  Make(2, 2);
  std::vector<float> two(2), three(3);
  const Future<Done> a = groups_[0].AllReduce(absl::MakeSpan(two));
  const Future<Done> b = groups_[1].AllReduce(absl::MakeSpan(three));
  for (const Future<Done>& call : {a, b}) {
    const absl::Status status = call.Wait(kDeadline).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    EXPECT_THAT(std::string(status.message()), ::testing::AllOf(::testing::HasSubstr("8 bytes"),
                                                                ::testing::HasSubstr("12 bytes")));
  }
  ForAll([&](size_t rank) { return groups_[rank].Barrier(); });
}

TEST_F(LocalGroupsTest, ACallWithWrongSizesFailsOnAllMembersAndTakesItsNumber) {
  Make(2, 2);
  std::vector<int64_t> in(3, 1), out(5, 0);
  const Future<Done> calls[] = {groups_[0].AllGather(in.data(), 24, out.data(), 40),
                                groups_[1].Barrier()};
  for (const Future<Done>& call : calls) {
    const absl::Status status = call.Wait(kDeadline).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    EXPECT_THAT(std::string(status.message()),
                ::testing::HasSubstr("an input of 24 bytes and an output of 40 in a group of 2"));
  }
  EXPECT_EQ(groups_[0].calls(), 1u);
  EXPECT_EQ(groups_[1].calls(), 1u);
  std::vector<std::vector<int64_t>> vectors(2, std::vector<int64_t>(4, 1));
  ForAll([&](size_t rank) { return groups_[rank].AllReduce(absl::MakeSpan(vectors[rank])); });
  EXPECT_EQ(vectors[0], std::vector<int64_t>(4, 2));
  EXPECT_EQ(vectors[1], std::vector<int64_t>(4, 2));
  EXPECT_EQ(groups_[0].calls(), 2u);
}

TEST_F(LocalGroupsTest, FailedCallsKeepNoMemory) {
  Make(1, 2);
  std::vector<float> one(50'000, 1), other(50'001, 1);
  for (int call = 0; call < 100; ++call) {
    const Future<Done> calls[] = {groups_[0].AllReduce(absl::MakeSpan(one)),
                                  groups_[1].AllReduce(absl::MakeSpan(other))};
    for (const Future<Done>& each : calls) {
      const absl::Status status = each.Wait(kDeadline).status();
      ASSERT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
      ASSERT_THAT(std::string(status.message()), ::testing::HasSubstr("differs"));
    }
  }
  std::vector<float> vectors[] = {one, one};
  ForAll([&](size_t rank) { return groups_[rank].AllReduce(absl::MakeSpan(vectors[rank])); });
  EXPECT_EQ(vectors[1], std::vector<float>(50'000, 2));
}

TEST_F(LocalGroupsTest, CancelledCallsKeepNoMemory) {
  Make(1, 2);
  for (int call = 0; call < 150; ++call) {
    std::vector<float> vectors[] = {std::vector<float>(30'000, 1), std::vector<float>(30'000, 1)};
    const Future<Done> first = groups_[0].AllReduce(absl::MakeSpan(vectors[0]));
    if (call % 2 == 0) first.Cancel();
    const Future<Done> second = groups_[1].AllReduce(absl::MakeSpan(vectors[1]));
    ASSERT_THAT(second.Wait(kDeadline), IsOk()) << "call " << call;
    ASSERT_EQ(vectors[1], std::vector<float>(30'000, 2));
    if (call % 2 == 1) {
      ASSERT_THAT(first.Wait(kDeadline), IsOk());
    }
  }
}

TEST_F(LocalGroupsTest, MembersOfOneClientLoseNoMemoryToEachOther) {
  Make(1, 1, 2, {.timeout = kDeadline});
  for (int call = 0; call < 200; ++call) {
    std::vector<std::vector<float>> vectors(2, std::vector<float>(30'000, 1));
    ForAll([&](size_t rank) { return groups_[rank].AllReduce(absl::MakeSpan(vectors[rank])); });
    ASSERT_EQ(vectors[0], std::vector<float>(30'000, 2)) << "call " << call;
    ASSERT_EQ(vectors[1], std::vector<float>(30'000, 2)) << "call " << call;
  }
}

TEST_F(LocalGroupsTest, InputsOfGrowingSizesKeepNoMemoryThatFitsNoMore) {
  Make(1, 1);
  // The node gives no buffer of less than 1 MiB.
  for (int call = 0; call < 80; ++call) {
    std::vector<double> vector(200'000 + static_cast<size_t>(call) * 1000, 1);
    ASSERT_THAT(groups_[0].AllReduce(absl::MakeSpan(vector)).Wait(kDeadline), IsOk()) << call;
  }
}

TEST_F(LocalGroupsTest, AMemberThatDoesNotWaitForItsCallsIsHeldBackUntilTheOthersFollow) {
  Make(1, 2);
  constexpr size_t kCalls = 2000;
  std::vector<int64_t> sums[2];
  std::vector<Future<Done>> calls[2];
  for (std::vector<int64_t>& each : sums) {
    for (size_t i = 0; i < kCalls; ++i) each.push_back(static_cast<int64_t>(i));
  }
  std::atomic<size_t> made = 0;
  const auto call = [&](size_t rank, size_t i) {
    calls[rank].push_back(groups_[rank].AllReduce(absl::MakeSpan(&sums[rank][i], 1)));
  };
  std::thread ahead([&] {
    for (size_t i = 0; i < kCalls; ++i) {
      call(0, i);
      ++made;
    }
  });
  // The other one follows with few calls at a time.
  while (made < 512) std::this_thread::yield();
  for (size_t i = 0; i < kCalls; ++i) {
    call(1, i);
    if (i < 100) calls[1].back().Wait(kDeadline).IgnoreError();
  }
  ahead.join();
  for (size_t rank = 0; rank < 2; ++rank) {
    for (size_t i = 0; i < kCalls; ++i) {
      ASSERT_THAT(calls[rank][i].Wait(kDeadline), IsOk()) << "rank " << rank << ", call " << i;
      ASSERT_EQ(sums[rank][i], static_cast<int64_t>(2 * i));
    }
  }
}

TEST_F(LocalGroupsTest, ACallThatIsHeldBackUntilItsDeadlineFailsOnAllMembers) {
  Make(1, 2, {.timeout = absl::Seconds(2)});
  std::vector<Future<Done>> calls;
  for (int i = 0; i < 513; ++i) calls.push_back(groups_[0].Barrier());
  EXPECT_EQ(calls.back().Wait(kDeadline).status().code(), absl::StatusCode::kDeadlineExceeded);
  for (int i = 0; i < 513; ++i) {
    const absl::Status status = groups_[1].Barrier().Wait(kDeadline).status();
    ASSERT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded) << status;
  }
  EXPECT_EQ(groups_[1].calls(), 513u);
  ForAll([&](size_t rank) { return groups_[rank].Barrier(); });
}

TEST_F(LocalGroupsTest, CallsWithoutANumberAreNotCounted) {
  Make(1, 2);
  ForAll([&](size_t rank) { return groups_[rank].Barrier(); });
  const Future<Done> under_way = groups_[0].Barrier();
  ASSERT_THAT(members_[0].Fail(), IsOk());
  EXPECT_FALSE(under_way.Wait(kDeadline).ok());
  EXPECT_FALSE(groups_[0].Barrier().Wait(kDeadline).ok());
  EXPECT_FALSE(groups_[0].Barrier().Wait(kDeadline).ok());
  EXPECT_LE(groups_[0].calls(), 2u);
}

TEST_F(LocalGroupsTest, ACallOfALifeThatIsReplacedEndsWithAborted) {
  Make(1, 2);
  const Future<Done> call = groups_[0].Barrier();
  ClientOptions client_options;
  client_options.address = cluster_->client_address(0);
  clients_.push_back(Client::Connect(client_options).value());
  JoinOptions join;
  join.world = 2;
  const absl::StatusOr<Membership> again = clients_.back()->Join("train", "worker0", join);
  ASSERT_THAT(again, IsOk());
  EXPECT_EQ(call.Wait(kDeadline).status().code(), absl::StatusCode::kAborted);
}

// Calls 1 and 2 come before the first checkpoint is looked for. There is one after call 4.
GroupKeep KeepOf(uint64_t number) {
  if (number <= 2) return {};
  return {.boot = 2, .released = number <= 4 ? 2u : 4u, .mark = number <= 4 ? 0u : 1u};
}

TEST_F(LocalGroupsTest, ANextLifeGoesOnFromTheCheckpointOfWhichTheCallsHaveSaid) {
  const GroupOptions options{
      .on_loss = LossPolicy::kWait, .timeout = kDeadline, .retain = kUntilReleased};
  // Small results, and those in memory of the node.
  for (const size_t count : {1, 100'000}) {
    groups_.clear();
    members_.clear();
    clients_.clear();
    Make(2, 4, options);
    EXPECT_EQ(groups_[1].Progress().Wait(kDeadline).value().ended, 0u);
    std::vector<uint64_t> vectors[4];
    const auto call = [&](size_t rank, uint64_t number) {
      groups_[rank].Keep(KeepOf(number));
      vectors[rank].assign(count, (rank + 1) * number);
      return groups_[rank].AllReduce(absl::MakeSpan(vectors[rank]));
    };
    for (uint64_t number = 1; number <= 6; ++number) {
      ForAll([&](size_t rank) { return call(rank, number); });
    }
    std::vector<Future<Done>> calls{call(0, 7), call(1, 7), call(2, 7)};
    ASSERT_THAT(members_[3].Fail(), IsOk());
    JoinOptions join;
    join.world = 4;
    members_[3] = clients_[3]->Join("train", "worker3", join).value();
    groups_[3] = Group(members_[3], options);
    const GroupProgress progress = groups_[3].Progress().Wait(kDeadline).value();
    EXPECT_EQ(progress.ended, 6u);
    EXPECT_EQ(progress.keep, KeepOf(6));
    EXPECT_EQ(groups_[3].calls(), 6u);
    for (const uint64_t number : {1, 2, 5, 6}) {
      std::vector<uint64_t> result(count);
      ASSERT_THAT(groups_[3].Result(number, absl::MakeSpan(result)).Wait(kDeadline), IsOk());
      EXPECT_EQ(result, std::vector<uint64_t>(count, 10 * number));
    }
    for (const uint64_t number : {3, 4}) {
      std::vector<uint64_t> result(count);
      EXPECT_EQ(groups_[3].Result(number, absl::MakeSpan(result)).Wait(kDeadline).status().code(),
                absl::StatusCode::kNotFound);
    }
    calls.push_back(call(3, 7));
    for (const Future<Done>& each : calls) ASSERT_THAT(each.Wait(kDeadline), IsOk());
    EXPECT_EQ(vectors[0], std::vector<uint64_t>(count, 10 * 7));
  }
}

TEST_F(LocalGroupsTest, MembersThatKeepOtherResultsGetAnErrorOnAllSides) {
  Make(2, 2, {.timeout = kDeadline, .retain = kUntilReleased});
  groups_[1].Keep({.mark = 3});
  const Future<Done> calls[] = {groups_[0].Barrier(), groups_[1].Barrier()};
  for (const Future<Done>& call : calls) {
    EXPECT_EQ(call.Wait(kDeadline).status().code(), absl::StatusCode::kInvalidArgument);
  }
}

TEST_F(LocalGroupsTest, ACallGoesOnWithoutAMemberWhoseClientEnds) {
  Make(3, 3, {.on_loss = LossPolicy::kExclude, .timeout = kDeadline});
  ForAll([&](size_t rank) { return groups_[rank].Barrier(); });
  std::vector<std::vector<float>> vectors(2, std::vector<float>(300'000, 1));
  std::vector<Future<Done>> calls;
  for (size_t rank = 0; rank < 2; ++rank) {
    calls.push_back(groups_[rank].AllReduce(absl::MakeSpan(vectors[rank])));
  }
  EXPECT_THAT(members_[2].Fail(), IsOk());
  for (const Future<Done>& call : calls) ASSERT_THAT(call.Wait(kDeadline), IsOk());
  for (const auto& vector : vectors) EXPECT_EQ(vector, std::vector<float>(300'000, 2));
  EXPECT_EQ(groups_[0].members_of_last_call(), 2);
}

}  // namespace
}  // namespace phalanx::runtime
