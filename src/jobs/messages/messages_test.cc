// Messages of two nodes over links between them, in a simulated network. The test is the shard.
#include "src/jobs/messages/messages.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "src/common/testing/status_matchers.h"
#include "src/directory/core/validate.h"
#include "src/net/testing/sim_links.h"
#include "src/object_store/channel/shard_channel.h"

namespace phalanx::jobs {
namespace {

using ::phalanx::testing::IsOk;
using ::phalanx::testing::StatusIs;
using ::testing::ElementsAre;

constexpr int kSenders = 17;

std::string TaskOf(int rank) { return absl::StrCat("worker", rank); }

// A node, and the client of its members.
class Node final : public MemberListener, public MailboxOwner {
 public:
  explicit Node(net::testing::SimLinkNode& links)
      : links_(links),
        channel_(
            1, [](int, v1::NodeMessage&&) {},
            [&links](object_store::ShardChannel::Task task) {
              links.control().Post(std::move(task));
            }),
        members_(links.key(), "node", links.control(), channel_),
        messages_(links.key(), links.control(), members_, links.links()) {}

  // The shard says which tasks are members; those with a rank from `first` to before `end` are
  // clients of this node.
  void Join(const v1::ShardMessage& update, int first, int end) {
    for (int rank = first; rank < end; ++rank) {
      joining_.push_back(
          members_.Join({"job", "worker", TaskOf(rank), kSenders + 1}, Instant::Infinite(), this)
              .value());
    }
    channel_.OnMessage(0, update);
    for (int rank = first; rank < end; ++rank) {
      v1::ShardMessage reply;
      reply.mutable_job()->mutable_join_reply()->set_request_id(
          joining_[static_cast<size_t>(rank - first)]);
      reply.mutable_job()->mutable_join_reply()->set_rank(static_cast<uint32_t>(rank));
      channel_.OnMessage(0, reply);
    }
  }
  // Sends to the last rank.
  void Send(int from, std::string bytes, Messages::Done done) {
    messages_.Send(joining_[static_cast<size_t>(from)], "worker", kSenders, {}, std::move(bytes),
                   Instant::Infinite(), std::move(done));
  }
  // The first member leaves, and stays in the table for what others need of it.
  void BeginToLeave() {
    messages_.End(joining_.front());
    members_.Detach(joining_.front());
  }
  const net::LinkPeer& peer() const { return links_.peer(); }

  std::vector<std::string> arrived;

 private:
  void OnJoined(MemberId id, const absl::StatusOr<LocalMember>& member) override {
    PHALANX_EXPECT_OK(member.status());
    messages_.Begin(id, this);
  }
  void OnChanged(MemberId) override {}
  void OnEnded(MemberId, const absl::Status&) override {}
  void OnMessage(MemberId, const ArrivedMessage& message) override {
    arrived.push_back(*message.bytes);
  }

  net::testing::SimLinkNode& links_;
  object_store::ShardChannel channel_;
  Members members_;
  Messages messages_;
  std::vector<MemberId> joining_;
};

// Ranks 0 to kSenders - 1 are on node a, and the last one is on node b.
class MessagesTest : public ::testing::Test {
 protected:
  MessagesTest() {
    v1::ShardMessage message;
    v1::JobUpdate& update = *message.mutable_job()->mutable_job_update();
    update.set_job("job");
    update.mutable_epoch()->set_counter(1);
    update.set_whole(true);
    update.add_roles()->set_name("worker");
    update.mutable_roles(0)->set_world(kSenders + 1);
    for (int rank = 0; rank <= kSenders; ++rank) {
      const net::LinkPeer& at = rank < kSenders ? a_.peer() : b_.peer();
      v1::JobMember& member = *update.add_members();
      member.set_rank(static_cast<uint32_t>(rank));
      member.set_task(TaskOf(rank));
      member.set_state(v1::JobMember::LIVE);
      directory::ToProto(at.key, member.mutable_node());
      member.set_address(at.address);
    }
    a_.Join(message, 0, kSenders);
    b_.Join(message, kSenders, kSenders + 1);
  }

  net::testing::SimLinks world_;
  Node a_ = Node(world_.Add("a"));
  Node b_ = Node(world_.Add("b"));
};

TEST_F(MessagesTest, ALossIsReportedOnceAlsoIfMessagesFollowAtOnce) {
  constexpr auto kIgnore = [](const absl::Status&) {};
  constexpr uint64_t kWindow = kMessageWindow / kMessageOverhead;
  static_assert(kWindow * (kSenders - 1) == net::kMaxLinkQueuedMessages);
  world_.fabric().PartitionBothWays("a", "b");
  std::vector<absl::Status> ended;
  const auto note = [&](const absl::Status& status) { ended.push_back(status); };
  for (int sender = 0; sender < kSenders - 1; ++sender) {
    for (uint64_t i = 0; i < kWindow; ++i) a_.Send(sender, "", kIgnore);
  }
  // Waits for credit, until the link is lost. Then its member goes on at once.
  a_.Send(0, "", [&](const absl::Status& status) {
    ended.push_back(status);
    a_.Send(0, "not sent", note);
    a_.Send(0, "after the loss", note);
  });
  // There is no room in the link for this one, so the link is given up.
  a_.Send(kSenders - 1, "", kIgnore);
  world_.RunFor(absl::Seconds(1));
  world_.fabric().HealAll();
  world_.RunFor(absl::Seconds(5));
  a_.Send(0, "later", note);
  world_.RunFor(absl::Seconds(1));
  EXPECT_THAT(ended, ElementsAre(StatusIs(absl::StatusCode::kUnavailable),
                                 StatusIs(absl::StatusCode::kDataLoss), IsOk(), IsOk()));
  EXPECT_THAT(b_.arrived, ElementsAre("after the loss", "later"));
}

TEST_F(MessagesTest, AMemberThatLeavesTakesNoMessagesAlthoughItIsInTheTable) {
  std::vector<absl::Status> ended;
  const auto note = [&](const absl::Status& status) { ended.push_back(status); };
  b_.BeginToLeave();
  a_.Send(0, "refused by its node", note);
  world_.RunFor(absl::Seconds(1));
  a_.Send(0, "refused here", note);
  world_.RunFor(absl::Seconds(1));
  ASSERT_EQ(ended.size(), 2u);
  EXPECT_THAT(ended.back(), StatusIs(absl::StatusCode::kDataLoss));
  EXPECT_THAT(b_.arrived, ElementsAre());
}

}  // namespace
}  // namespace phalanx::jobs
