// Messages between members on real nodes with real sockets, over the links between the nodes.
#include <memory>
#include <string>
#include <utility>
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
using testing::StatusIs;

constexpr absl::Duration kDeadline = absl::Seconds(60);
constexpr int kNodes = 3;

class LocalMessagesTest : public ::testing::Test {
 protected:
  LocalMessagesTest() {
    LocalClusterOptions options;
    options.nodes = kNodes;
    cluster_ = LocalCluster::Start(std::move(options)).value();
    for (int node = 0; node < kNodes; ++node) {
      ClientOptions client;
      client.address = cluster_->client_address(node);
      clients_.push_back(Client::Connect(client).value());
      JoinOptions join;
      join.world = kNodes;
      members_.push_back(
          clients_.back()->Join("train", absl::StrCat("worker", node), std::move(join)).value());
    }
    for (const Membership& member : members_) {
      EXPECT_THAT(member.WaitForWorld(kDeadline), IsOk());
    }
  }

  std::unique_ptr<LocalCluster> cluster_;
  std::vector<std::shared_ptr<Client>> clients_;
  std::vector<Membership> members_;
};

TEST_F(LocalMessagesTest, EveryMemberReachesEveryOther) {
  // From i to j: messages of growing length, the last one the greatest.
  const std::vector<size_t> sizes = {0, 1, 1000, 70'000, kMaxMessageSize};
  std::vector<Future<Done>> sends;
  for (int from = 0; from < kNodes; ++from) {
    for (int to = 0; to < kNodes; ++to) {
      for (const size_t size : sizes) {
        if (from != to) sends.push_back(members_[from].Send(to, std::string(size, '0' + from)));
      }
    }
  }
  for (int to = 0; to < kNodes; ++to) {
    std::vector<size_t> next(kNodes, 0);
    for (size_t i = 0; i < (kNodes - 1) * sizes.size(); ++i) {
      PHALANX_ASSERT_OK_AND_ASSIGN(const Message message, members_[to].Receive(kDeadline));
      ASSERT_LT(next[message.rank], sizes.size());
      EXPECT_EQ(message.bytes, std::string(sizes[next[message.rank]++], '0' + message.rank));
    }
  }
  for (const Future<Done>& send : sends) EXPECT_THAT(send.Wait(kDeadline), IsOk());
}

TEST_F(LocalMessagesTest, MessagesGoBackAndForth) {
  for (int i = 0; i < 200; ++i) {
    EXPECT_THAT(members_[0].Send(1, absl::StrCat("to ", i)).Wait(kDeadline), IsOk());
    PHALANX_ASSERT_OK_AND_ASSIGN(const Message there, members_[1].Receive(kDeadline));
    EXPECT_EQ(there.bytes, absl::StrCat("to ", i));
    EXPECT_THAT(members_[1].Send(0, "back").Wait(kDeadline), IsOk());
    PHALANX_ASSERT_OK_AND_ASSIGN(const Message back, members_[0].Receive(kDeadline));
    EXPECT_EQ(back.rank, 1);
  }
}

TEST_F(LocalMessagesTest, ASendToATaskOfAnotherNodeThatDiesFails) {
  const std::string large(kMaxMessageSize, 'x');
  for (int i = 0; i < 3; ++i) {
    EXPECT_THAT(members_[0].Send(1, large).Wait(kDeadline), IsOk());
  }
  const Future<Done> waiting = members_[0].Send(1, large);
  EXPECT_THAT(members_[1].Fail(), IsOk());
  EXPECT_THAT(waiting.Wait(kDeadline), StatusIs(absl::StatusCode::kUnavailable));
}

}  // namespace
}  // namespace phalanx::runtime
