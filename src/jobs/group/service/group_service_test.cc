// Groups over links on a simulated network: whole messages, and connections that break.
#include "src/jobs/group/service/group_service.h"

#include <cstdio>
#include <fstream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "src/common/io/log.h"
#include "src/common/testing/status_matchers.h"
#include "src/jobs/group/testing/group_nodes.h"
#include "src/net/testing/sim_links.h"

namespace phalanx::jobs {
namespace {

using net::testing::SimLinks;
using testing::GroupNode;

class GroupServiceTest : public ::testing::Test {
 protected:
  // Node `limited` has room for one link.
  void Make(int nodes, int limited = -1) {
    for (int i = 0; i < nodes; ++i) {
      net::NodeLinksOptions options;
      if (i == limited) options.max_links = 1;
      net::testing::SimLinkNode& node = links_.Add("host" + std::to_string(i), std::move(options));
      peers_.push_back(node.peer());
      nodes_.push_back(std::make_unique<GroupNode>(node.key(), node.control(), node.links()));
    }
    const GroupView view = testing::ViewOf(peers_);
    for (size_t i = 0; i < nodes_.size(); ++i) {
      links_.nodes()[i]->control().Post([this, i, view] { nodes_[i]->service().OnView(view); });
    }
    links_.RunFor(absl::Seconds(1));
  }
  // Every member calls; element j of rank r is j % 7 + r.
  void CallAll(CallSpec spec) {
    for (size_t i = 0; i < nodes_.size(); ++i) CallOne(i, spec);
  }
  void CallAllBut(size_t other, CallSpec spec) {
    for (size_t i = 0; i < nodes_.size(); ++i) {
      if (i != other) CallOne(i, spec);
    }
  }
  void CallOne(size_t i, CallSpec spec) {
    {
      links_.nodes()[i]->control().Post([this, i, spec] {
        std::string input(InputBytes(spec, static_cast<int>(nodes_.size()), int(i)), '\0');
        for (size_t j = 0; j < input.size(); ++j) input[j] = static_cast<char>(j % 7 + i);
        nodes_[i]->Call(static_cast<int>(i), spec, std::move(input), nullptr);
      });
    }
  }
  void ExpectSums(size_t bytes) {
    const size_t n = nodes_.size();
    for (const auto& node : nodes_) {
      ASSERT_THAT(node->last_status, phalanx::testing::IsOk());
      ASSERT_EQ(node->last_result.size(), bytes);
      for (size_t j = 0; j < bytes; ++j) {
        ASSERT_EQ(node->last_result[j], static_cast<char>(j % 7 * n + n * (n - 1) / 2)) << j;
      }
    }
  }

  // Of two nodes. The next list is without the second one.
  void EndOnBothAndShowNextListToFirst() {
    links_.nodes()[0]->control().Post([this] {
      nodes_[0]->Call(0, {.kind = CallKind::kBarrier}, "", [this] {
        links_.nodes()[0]->control().Post([this] {
          GroupView next = testing::ViewOf(peers_);
          next.epoch.counter = 2;
          next.members[1].state = MemberState::kDied;
          nodes_[0]->service().OnView(next);
        });
      });
    });
    CallOne(1, {.kind = CallKind::kBarrier});
    links_.RunFor(absl::Seconds(1));
    EXPECT_THAT(nodes_[0]->last_status, phalanx::testing::IsOk());
  }

  SimLinks links_;
  std::vector<net::LinkPeer> peers_;
  std::vector<std::unique_ptr<GroupNode>> nodes_;
};

TEST_F(GroupServiceTest, SumsOfAllSizesArriveOnAllNodes) {
  Make(5);
  for (const uint64_t bytes : {1, 100, 10'000, 100'000, 3'000'000}) {
    CallAll({.kind = CallKind::kAllReduce, .dtype = DType::kU8, .bytes = bytes});
    links_.RunFor(absl::Seconds(5));
    ExpectSums(bytes);
  }
}

TEST_F(GroupServiceTest, ACallGoesOnWhereConnectionsBreak) {
  Make(4);
  CallAll({.kind = CallKind::kAllReduce, .dtype = DType::kU8, .bytes = 4'000'000});
  for (int cut = 0; cut < 8; ++cut) {
    links_.RunFor(absl::Milliseconds(3));
    links_.fabric().Reset("host0", "host1");
  }
  links_.RunFor(absl::Seconds(30));
  ExpectSums(4'000'000);
}

TEST_F(GroupServiceTest, AMessageBeforeTheViewWaitsForIt) {
  Make(2);
  // The second node leaves, and hears of the group again after the first one has called.
  links_.nodes()[1]->control().Post(
      [this] { nodes_[1]->service().OnGroupLeft("train", "worker"); });
  links_.RunFor(absl::Milliseconds(10));
  GroupView view = testing::ViewOf(peers_);
  view.epoch.counter = 2;
  view.members[1].life = 1;
  links_.nodes()[0]->control().Post([this, view] { nodes_[0]->service().OnView(view); });
  links_.RunFor(absl::Seconds(1));
  links_.nodes()[1]->control().Post([this, view] { nodes_[1]->service().OnView(view); });
  links_.RunFor(absl::Seconds(1));
  for (size_t i = 0; i < 2; ++i) {
    links_.nodes()[i]->control().Post([this, i] {
      const CallSpec spec{.kind = CallKind::kAllReduce, .dtype = DType::kU8, .bytes = 1};
      nodes_[i]->Call(static_cast<int>(i), spec, std::string(1, static_cast<char>(i)), nullptr, i);
    });
  }
  links_.RunFor(absl::Seconds(1));
  ExpectSums(1);
}

TEST_F(GroupServiceTest, AMessageForAGroupThatIsNotKnownYetOutlivesOlderOnes) {
  const std::string log = ::testing::TempDir() + "/log";
  std::remove(log.c_str());
  ASSERT_THAT(SetLogFile(log), phalanx::testing::IsOk());
  Make(2);
  const CallSpec sum{.kind = CallKind::kAllReduce, .dtype = DType::kU8, .bytes = 1};
  const auto call = [&](size_t node, const std::string& role) {
    links_.nodes()[node]->control().Post([this, node, role, sum] {
      GroupView view = testing::ViewOf(peers_);
      view.role = role;
      nodes_[node]->service().OnView(view);
      auto input = std::make_shared<std::string>(1, static_cast<char>(node));
      ASSERT_THAT(nodes_[node]->service().Call("train", role, static_cast<int>(node), 0,
                                               {.spec = sum, .input = *input, .keep = input},
                                               [this, node](const GroupDone& done) {
                                                 nodes_[node]->last_status = done.status;
                                                 nodes_[node]->last_result =
                                                     std::string(done.result);
                                               }),
                  phalanx::testing::IsOk());
    });
  };
  call(0, "first");
  links_.RunFor(kUnknownGroupPatience - absl::Seconds(1));
  call(0, "second");
  links_.RunFor(absl::Seconds(2));
  call(0, "third");
  links_.RunFor(absl::Seconds(1));
  call(1, "second");
  links_.RunFor(absl::Seconds(1));
  ExpectSums(1);
  ASSERT_THAT(SetLogFile(""), phalanx::testing::IsOk());
  std::ifstream lines(log);
  std::string line;
  std::getline(lines, line);
  EXPECT_THAT(line, ::testing::HasSubstr("dropped messages for a group without a member on this "
                                         "node messages="));
  EXPECT_THAT(line, ::testing::ContainsRegex(" node=" + peers_[0].key.ToString() +
                                             " group=[0-9]+ call=0$"));
}

TEST_F(GroupServiceTest, ALinkWithTooManyMessagesForUnknownGroupsIsGivenUp) {
  Make(2);
  links_.nodes()[0]->control().Post([this] {
    for (size_t i = 0; i <= kMaxEarlyMessages; ++i) {
      GroupView view = testing::ViewOf(peers_);
      view.role = "role" + std::to_string(i);
      nodes_[0]->service().OnView(view);
    }
  });
  links_.RunFor(absl::Milliseconds(100));
  EXPECT_GT(links_.nodes()[1]->links().stats().lost, 0u);
}

TEST_F(GroupServiceTest, MessagesForAGroupThatWasLeftAreDropped) {
  Make(2);
  links_.nodes()[1]->control().Post(
      [this] { nodes_[1]->service().OnGroupLeft("train", "worker"); });
  CallAllBut(1, {.kind = CallKind::kAllToAll, .bytes = 1'000'000});
  links_.RunFor(absl::Seconds(5));
  EXPECT_EQ(links_.nodes()[1]->links().stats().lost, 0u);
}

TEST_F(GroupServiceTest, CallsEndWithAbortedWhenTheLastMemberOfTheNodeEnds) {
  Make(2);
  CallAllBut(1, {.kind = CallKind::kBarrier});
  links_.RunFor(absl::Seconds(1));
  links_.nodes()[0]->control().Post(
      [this] { nodes_[0]->service().OnGroupLeft("train", "worker"); });
  links_.RunFor(absl::Seconds(1));
  EXPECT_THAT(nodes_[0]->last_status,
              phalanx::testing::StatusIs(absl::StatusCode::kAborted,
                                         "the last member of train/worker on this node has ended"));
}

TEST_F(GroupServiceTest, CallsGoOnOnNodesThatNoShardConfirms) {
  constexpr absl::Duration kLease = absl::Seconds(2);
  Make(3);
  for (size_t i = 0; i < 3; ++i) {
    links_.nodes()[i]->control().Post([&, i] {
      nodes_[i]->service().OnShardSession(0);
      nodes_[i]->service().OnShardHeard(0, links_.nodes()[i]->control().Now(), kLease);
    });
  }
  links_.RunFor(2 * kLease);
  for (const uint64_t bytes : {8, 100'000}) {
    CallAll({.kind = CallKind::kAllReduce, .dtype = DType::kU8, .bytes = bytes});
    links_.RunFor(absl::Seconds(1));
    ExpectSums(bytes);
  }
}

// The other node ends the call, and hears of another list before it is asked.
TEST_F(GroupServiceTest, MembersGetTheirAnswersWhenTheShardHasConfirmedThatTheyLive) {
  Make(2);
  links_.nodes()[1]->control().Post([&] {
    nodes_[1]->service().OnShardSession(0);
    nodes_[1]->service().OnShardSession(0);
  });
  EndOnBothAndShowNextListToFirst();
  EXPECT_TRUE(absl::IsUnknown(nodes_[1]->last_status)) << nodes_[1]->last_status;
  EXPECT_EQ(nodes_[1]->service().stats().under_way, 1u);
  // In a new session the node waits until the shard has handled its registration.
  links_.nodes()[1]->control().Post([&] {
    nodes_[1]->service().OnShardHeard(0, links_.nodes()[1]->control().Now(), absl::Seconds(2));
  });
  links_.RunFor(absl::Milliseconds(10));
  EXPECT_TRUE(absl::IsUnknown(nodes_[1]->last_status)) << nodes_[1]->last_status;
  links_.nodes()[1]->control().Post([&] { nodes_[1]->service().OnShardRegistered(0); });
  links_.RunFor(absl::Milliseconds(10));
  EXPECT_THAT(nodes_[1]->last_status, phalanx::testing::IsOk());
}

TEST_F(GroupServiceTest, MembersThatWereDeclaredDeadGetAbortedAndNotTheResult) {
  Make(2);
  links_.nodes()[1]->control().Post([&] {
    nodes_[1]->service().OnShardSession(0);
    nodes_[1]->service().OnShardSession(0);
  });
  EndOnBothAndShowNextListToFirst();
  EXPECT_TRUE(absl::IsUnknown(nodes_[1]->last_status)) << nodes_[1]->last_status;
  links_.nodes()[1]->control().Post([&] {
    nodes_[1]->service().OnGroupLeft("train", "worker");
    nodes_[1]->service().OnShardRegistered(0);
  });
  links_.RunFor(absl::Seconds(1));
  EXPECT_TRUE(absl::IsAborted(nodes_[1]->last_status)) << nodes_[1]->last_status;
}

TEST_F(GroupServiceTest, AGroupGoesOnAfterALostLink) {
  Make(3);
  const CallSpec sum{.kind = CallKind::kAllReduce, .dtype = DType::kU8, .bytes = 100'000};
  CallAllBut(2, sum);
  links_.RunFor(absl::Milliseconds(100));
  links_.nodes()[0]->control().Post([this] { links_.nodes()[0]->links().Forget(peers_[1].key); });
  links_.RunFor(absl::Seconds(5));
  EXPECT_TRUE(absl::IsUnavailable(nodes_[0]->last_status)) << nodes_[0]->last_status;
  CallOne(2, sum);
  links_.RunFor(absl::Seconds(5));
  EXPECT_FALSE(nodes_[2]->last_status.ok());
  CallAll(sum);
  links_.RunFor(absl::Seconds(5));
  ExpectSums(100'000);
}

TEST_F(GroupServiceTest, ACallFailsIfANodeHasNoRoomForALink) {
  // The second node has its link with the first one, and cannot send to the third.
  Make(3, /*limited=*/1);
  CallAll({.kind = CallKind::kAllToAll, .bytes = 8});
  links_.RunFor(absl::Seconds(30));
  EXPECT_TRUE(absl::IsUnavailable(nodes_[1]->last_status)) << nodes_[1]->last_status;
  // The third one hears of it when the nodes agree for the next call.
  CallAll({.kind = CallKind::kAllToAll, .bytes = 8});
  links_.RunFor(absl::Seconds(30));
  EXPECT_FALSE(absl::IsUnknown(nodes_[2]->last_status));
}

TEST_F(GroupServiceTest, AQuestionIsAnsweredOnTheOnlyNodeAlsoUnderANewList) {
  Make(1);
  const CallSpec sum{
      .kind = CallKind::kAllReduce, .dtype = DType::kU8, .bytes = 1, .retain = 1, .copies = 1};
  for (int call = 1; call <= 2; ++call) {
    CallAll(sum);
    links_.RunFor(absl::Seconds(1));
  }
  absl::Status status = absl::UnknownError("not answered");
  links_.nodes()[0]->control().Post([this, &status] {
    GroupView view = testing::ViewOf(peers_);
    view.epoch.counter = 2;
    nodes_[0]->service().OnView(view);
    const auto done = [&status](const GroupDone& done) { status = done.status; };
    EXPECT_THAT(nodes_[0]->service().AskResult("train", "worker", {.call = 1}, done),
                phalanx::testing::IsOk());
  });
  links_.RunFor(absl::Seconds(1));
  EXPECT_THAT(status, phalanx::testing::StatusIs(absl::StatusCode::kNotFound));
  EXPECT_EQ(nodes_[0]->service().stats().ended, 2u);
  EXPECT_EQ(nodes_[0]->service().stats().failed, 0u);
}

TEST_F(GroupServiceTest, AQuestionOfAMemberThatEndsIsNoFailedCall) {
  Make(2);
  absl::Status status = absl::UnknownError("not answered");
  links_.nodes()[0]->control().Post([this, &status] {
    // The other node does not answer the first agreement in this turn.
    const auto done = [&status](const GroupDone& done) { status = done.status; };
    EXPECT_THAT(nodes_[0]->service().AskResult("train", "worker", {.life = 1, .call = 1}, done),
                phalanx::testing::IsOk());
    EXPECT_EQ(nodes_[0]->service().stats().under_way, 1u);
    nodes_[0]->service().OnGroupLeft("train", "worker");
  });
  links_.RunFor(absl::Seconds(1));
  EXPECT_THAT(status, phalanx::testing::StatusIs(absl::StatusCode::kAborted));
  EXPECT_EQ(nodes_[0]->service().stats().under_way, 0u);
  EXPECT_EQ(nodes_[0]->service().stats().failed, 0u);
}

TEST_F(GroupServiceTest, ACallOfANodeWithoutTheGroupFails) {
  Make(1);
  nodes_[0]->service().OnGroupLeft("train", "worker");
  EXPECT_EQ(
      nodes_[0]->service().Call("train", "worker", 0, 0, {.id = 0}, [](const GroupDone&) {}).code(),
      absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace phalanx::jobs
