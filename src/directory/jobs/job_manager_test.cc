// A shard and nodes whose tasks join jobs, die and come back; src/jobs/testing simulates the same
// with faults.
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "src/common/ids/job_ids.h"
#include "src/common/testing/status_matchers.h"
#include "src/directory/testing/directory_core_harness.h"

namespace phalanx::directory {
namespace {

using ::phalanx::testing::IsOk;
using ::phalanx::testing::StatusIs;
using testing::Harness;
using ::testing::HasSubstr;

struct Options {
  int world = 4;
  std::string role = "worker";
  std::optional<int> rank = {};
  std::string job = "train";
};

class JobManagerTest : public ::testing::Test {
 protected:
  explicit JobManagerTest(DirectoryOptions options = {}) : h(/*learning=*/false, options) {}

  void SendJoin(const NodeKey& node, const std::string& task, const Options& options = {}) {
    v1::NodeMessage message;
    v1::JoinRequest& join = *message.mutable_job()->mutable_join_request();
    join.set_request_id(++last_request_);
    join.set_job(options.job);
    join.set_role(options.role);
    join.set_task(task);
    join.set_world(static_cast<uint32_t>(options.world));
    if (options.rank.has_value()) {
      join.set_has_rank(true);
      join.set_rank(static_cast<uint32_t>(*options.rank));
    }
    ASSERT_THAT(h.Send(node, message), IsOk());
  }

  // The reply to the last request of the node.
  std::optional<v1::JoinReply> Reply(const NodeKey& node) {
    std::optional<v1::JoinReply> reply;
    for (const v1::ShardMessage& message : h.Received(node)) {
      if (message.has_job() && message.job().has_join_reply()) reply = message.job().join_reply();
    }
    return reply;
  }

  // "rank.life", or the error.
  std::string Join(const NodeKey& node, const std::string& task, const Options& options = {}) {
    SendJoin(node, task, options);
    const std::optional<v1::JoinReply> reply = Reply(node);
    if (!reply.has_value() || reply->request_id() != last_request_) return "no reply";
    if (reply->code() != 0) return reply->message();
    return absl::StrCat(reply->rank(), ".", reply->life());
  }

  void End(const NodeKey& node, const std::string& task, uint64_t life, bool left = false) {
    v1::NodeMessage message;
    v1::MemberEnded& ended = *message.mutable_job()->mutable_member_ended();
    ended.set_job("train");
    ended.set_role("worker");
    ended.set_task(task);
    ended.set_life(life);
    ended.set_left(left);
    ASSERT_THAT(h.Send(node, message), IsOk());
  }

  std::vector<v1::JobUpdate> Updates(const NodeKey& node) {
    std::vector<v1::JobUpdate> updates;
    for (const v1::ShardMessage& message : h.Received(node)) {
      if (message.has_job() && message.job().has_job_update()) {
        updates.push_back(message.job().job_update());
      }
    }
    return updates;
  }

  // The members in the node's last update: "worker0.0+ worker1.2-" (live, died; "=" left).
  std::string News(const NodeKey& node) {
    const std::vector<v1::JobUpdate> updates = Updates(node);
    if (updates.empty()) return "nothing";
    std::string text = updates.back().whole() ? "all:" : "";
    for (const v1::JobMember& member : updates.back().members()) {
      const bool live = member.state() == v1::JobMember::LIVE;
      const bool left = member.state() == v1::JobMember::LEFT;
      absl::StrAppend(&text, text.empty() ? "" : " ", member.task(), ".", member.life(),
                      live   ? "+"
                      : left ? "="
                             : "-");
    }
    return text;
  }

  // Registers what the node got in `updates`, all in one message, as of the last epoch.
  void Register(const NodeKey& node, const std::vector<v1::JobUpdate>& updates) {
    v1::NodeMessage message;
    v1::RegisterJob& job = *message.mutable_job()->mutable_register_job();
    job.set_job("train");
    std::map<uint32_t, v1::JobMember> members;
    for (const v1::JobUpdate& update : updates) {
      *job.mutable_epoch() = update.epoch();
      *job.mutable_roles() = update.roles();
      for (const v1::JobMember& member : update.members()) members[member.rank()] = member;
    }
    for (const auto& [rank, member] : members) *job.add_members() = member;
    ASSERT_THAT(h.Send(node, message), IsOk());
  }

  // Each of the nodes registers what it got.
  void RestartShard(const std::vector<std::pair<NodeKey, std::vector<v1::JobUpdate>>>& nodes) {
    h.Clear();
    h.RestartShard();
    for (const auto& [node, updates] : nodes) {
      h.NewSession(node, true);
      Register(node, updates);
      h.RegisterEnd(node);
    }
  }

  Harness h;
  uint64_t last_request_ = 0;
};

TEST_F(JobManagerTest, ATaskHasTheRankOfItsNameAndEveryNodeWithMembersHearsOfIt) {
  const NodeKey a = h.Up("a"), b = h.Up("b"), c = h.Up("c");
  EXPECT_EQ(Join(a, "worker2"), "2.0");
  EXPECT_EQ(News(a), "all: worker2.0+");
  EXPECT_EQ(Join(b, "worker0"), "0.0");
  EXPECT_EQ(News(b), "all: worker0.0+ worker2.0+");
  h.Advance(absl::Milliseconds(1));
  EXPECT_EQ(News(a), "worker0.0+");
  EXPECT_EQ(News(c), "nothing");
  EXPECT_LT(Updates(a)[0].epoch().counter(), Updates(a)[1].epoch().counter());
}

TEST_F(JobManagerTest, OtherNamesHaveTheLeastFreeRankAndKeepIt) {
  const NodeKey a = h.Up("a");
  EXPECT_EQ(Join(a, "alpha"), "0.0");
  EXPECT_EQ(Join(a, "worker0"), "1.0");
  EXPECT_EQ(Join(a, "beta", {.rank = 3}), "3.0");
  EXPECT_EQ(Join(a, "gamma"), "2.0");
  EXPECT_EQ(Join(a, "alpha"), "0.1");
  EXPECT_EQ(Join(a, "delta"),
            "all 4 ranks of role worker of job train have tasks; delta is none of them");
}

TEST_F(JobManagerTest, AJoinThatContradictsTheJobIsAnErrorThatNamesBoth) {
  const NodeKey a = h.Up("a");
  Join(a, "worker0");
  EXPECT_EQ(Join(a, "worker1", {.world = 5}),
            "role worker of job train has a world of 4, but worker1 joins with a world of 5");
  EXPECT_EQ(Join(a, "x", {.rank = 0}),
            "rank 0 of role worker of job train belongs to task worker0");
  EXPECT_EQ(Join(a, "worker0", {.rank = 2}),
            "task worker0 of role worker of job train has rank 0, not 2");
  // Another role has a world of its own.
  EXPECT_EQ(Join(a, "ps0", {.world = 1, .role = "ps"}), "0.0");
}

TEST_F(JobManagerTest, TheEndOfAMemberIsToldAtOnce) {
  const NodeKey a = h.Up("a"), b = h.Up("b");
  Join(a, "worker0");
  Join(b, "worker1");
  End(b, "worker1", 0);
  EXPECT_EQ(News(a), "worker1.0-");
  End(a, "worker0", 0, /*left=*/true);
  EXPECT_EQ(News(a), "worker0.0=");
}

TEST_F(JobManagerTest, ANodeThatIsFencedTakesItsMembersAlong) {
  const NodeKey a = h.Up("a"), b = h.Up("b");
  Join(a, "worker0");
  Join(b, "worker1");
  Join(b, "worker2");
  h.Advance(absl::Milliseconds(1));
  h.Down(b);
  EXPECT_EQ(News(a), "worker1.0- worker2.0-");
}

TEST_F(JobManagerTest, ANewerLifeReplacesALiveOneAndTheEndOfTheOlderOneIsLate) {
  const NodeKey a = h.Up("a"), b = h.Up("b");
  Join(a, "worker0");
  EXPECT_EQ(Join(b, "worker0"), "0.1");
  EXPECT_EQ(News(a), "worker0.1+");
  h.Clear();
  End(a, "worker0", 0);
  EXPECT_EQ(News(b), "nothing");
  // Its only member was replaced: it has heard so, and hears nothing more.
  End(b, "worker0", 1);
  EXPECT_EQ(News(a), "nothing");
}

TEST_F(JobManagerTest, AJobIsForgottenAGraceAfterItsLastMember) {
  const NodeKey a = h.Up("a");
  Join(a, "worker0");
  End(a, "worker0", 0);
  h.Advance(absl::Seconds(59));
  EXPECT_EQ(Join(a, "worker0"), "0.1");
  End(a, "worker0", 1);
  h.Advance(absl::Seconds(61));
  EXPECT_EQ(Join(a, "worker0", {.world = 2}), "0.0");
}

TEST_F(JobManagerTest, ARestartedShardLearnsTheJobAndNobodyNotices) {
  const NodeKey a = h.Up("a"), b = h.Up("b");
  Join(a, "worker0");
  Join(b, "worker1");
  Join(b, "worker1");
  h.Advance(absl::Milliseconds(1));
  const std::vector<v1::JobUpdate> of_a = Updates(a), of_b = Updates(b);
  RestartShard({{a, of_a}, {b, of_b}});
  // A join now could be given a life that a node has not registered so far.
  EXPECT_EQ(Join(a, "worker1"), "no reply");
  EXPECT_EQ(News(a), "nothing");
  EXPECT_EQ(News(b), "nothing");
  h.Advance(absl::Seconds(2));
  EXPECT_EQ(Reply(a)->life(), 2u);
  EXPECT_EQ(News(a), "worker1.2+");
  EXPECT_EQ(News(b), "worker1.2+");
  EXPECT_GT(Updates(a)[0].epoch().incarnation(), of_a.back().epoch().incarnation());
}

TEST_F(JobManagerTest, WhoIsNotRegisteredAgainHasDied) {
  const NodeKey a = h.Up("a"), b = h.Up("b"), c = h.Up("c");
  Join(a, "worker0");
  Join(b, "worker1");
  Join(c, "worker2");
  Join(c, "worker3");
  h.Advance(absl::Milliseconds(1));
  const std::vector<v1::JobUpdate> of_a = Updates(a);
  std::vector<v1::JobUpdate> of_c = Updates(c);
  h.Clear();
  h.RestartShard();
  h.NewSession(a, true);
  Register(a, of_a);
  h.RegisterEnd(a);
  // c registers that worker3 has died meanwhile; b does not come back.
  of_c.back().mutable_members(of_c.back().members_size() - 1)->set_state(v1::JobMember::DIED);
  h.NewSession(c, true);
  Register(c, of_c);
  h.RegisterEnd(c);
  h.Advance(absl::Seconds(2));
  EXPECT_EQ(News(a), "worker3.0- worker1.0-");
  h.Clear();
  // b comes later than the lease: its member is not revived, and b hears of that.
  h.NewSession(b, true, true);
  std::vector<v1::JobUpdate> of_b = of_a;
  Register(b, of_b);
  h.RegisterEnd(b);
  h.Advance(absl::Milliseconds(1));
  EXPECT_EQ(News(b), "all: worker0.0+ worker1.0- worker2.0+ worker3.0-");
  EXPECT_EQ(News(a), "nothing");
}

TEST_F(JobManagerTest, ANewSessionConfirmsTheMembersThatItRegisters) {
  const NodeKey a = h.Up("a"), b = h.Up("b");
  Join(a, "worker0");
  Join(b, "worker1");
  Join(b, "worker2");
  h.Advance(absl::Milliseconds(1));
  std::vector<v1::JobUpdate> of_b = Updates(b);
  of_b.back().clear_members();
  h.Clear();
  h.NewSession(b, true);
  Register(b, of_b);
  EXPECT_EQ(News(a), "nothing");
  h.RegisterEnd(b);
  EXPECT_EQ(News(a), "worker2.0-");
}

// A node that is Registered answers calls of groups again.
TEST_F(JobManagerTest, ANodeHearsOfTheEndsOfItsMembersBeforeItIsRegistered) {
  const NodeKey a = h.Up("a"), b = h.Up("b");
  Join(a, "worker0");
  Join(b, "worker1");
  h.Advance(absl::Milliseconds(1));
  const std::vector<v1::JobUpdate> of_a = Updates(a), of_b = Updates(b);
  h.Down(b);
  h.Clear();
  h.NewSession(b, true);
  Register(b, of_b);
  h.RegisterEnd(b);
  EXPECT_EQ(News(b), "all: worker0.0+ worker1.0-");
  EXPECT_EQ(h.ReceivedBeforeRegistered(b), 1u);
  // A restarted shard hears of the end from another node, and says so when it has learned.
  std::vector<v1::JobUpdate> known = of_a;
  known.back() = Updates(b).back();
  h.Clear();
  h.RestartShard();
  h.NewSession(b, true, /*lease_ended=*/true);
  Register(b, of_b);
  h.RegisterEnd(b);
  h.NewSession(a, true);
  Register(a, known);
  h.RegisterEnd(a);
  EXPECT_EQ(News(b), "nothing");
  h.Advance(absl::Seconds(2));
  EXPECT_EQ(News(b), "all: worker0.0+ worker1.0-");
  EXPECT_EQ(h.ReceivedBeforeRegistered(b), 1u);
}

class FullJobsTest : public JobManagerTest {
 protected:
  FullJobsTest() : JobManagerTest(Limited()) {}

  static DirectoryOptions Limited() {
    DirectoryOptions options;
    options.max_job_members = 3;
    return options;
  }
  uint64_t Refused() {
    v1::GetStatusResponse status;
    h.core().FillStatus(h.now(), &status);
    return status.counters().at("members_refused");
  }
};

TEST_F(FullJobsTest, ATaskThatIsKnownJoinsAgainAndAnotherOneDoesNot) {
  const NodeKey a = h.Up("a");
  for (int i = 0; i < 3; ++i) Join(a, absl::StrCat("worker", i));
  EXPECT_EQ(Join(a, "worker3"), "job train: the jobs of the shard have 3 members already");
  End(a, "worker1", 0);
  EXPECT_EQ(Join(a, "worker1"), "1.1");
  EXPECT_EQ(Join(a, "worker2"), "2.1");
  EXPECT_EQ(Join(a, "eval0", {.job = "eval"}),
            "job eval: the jobs of the shard have 3 members already");
}

TEST_F(FullJobsTest, ARestartedShardLearnsAsMuchAsItHad) {
  const NodeKey a = h.Up("a"), b = h.Up("b");
  Join(a, "worker0");
  Join(b, "worker1");
  Join(b, "worker2");
  h.Advance(absl::Milliseconds(1));
  const std::vector<v1::JobUpdate> of_a = Updates(a), of_b = Updates(b);
  RestartShard({{a, of_a}, {b, of_b}});
  h.Advance(absl::Seconds(2));
  // Nothing has changed, so that no node hears anything.
  EXPECT_EQ(News(a), "nothing");
  EXPECT_EQ(News(b), "nothing");
  EXPECT_EQ(Join(a, "worker0"), "0.1");
}

TEST_F(FullJobsTest, AMemberForWhichThereIsNoPlaceIsCountedAndTheOthersAreTaken) {
  const NodeKey a = h.Up("a"), b = h.Up("b");
  Join(a, "worker0");
  Join(b, "worker1");
  h.Advance(absl::Milliseconds(1));
  std::vector<v1::JobUpdate> of_b = Updates(b);
  v1::JobUpdate& last = of_b.back();
  for (uint32_t rank = 2; rank < 4; ++rank) {
    v1::JobMember& more = *last.add_members();
    more = last.members(1);
    more.set_rank(rank);
    more.set_task(absl::StrCat("worker", rank));
  }
  h.RestartShard();
  h.Clear();
  h.NewSession(b, true);
  Register(b, of_b);
  h.RegisterEnd(b);
  h.NewSession(a, true);
  h.RegisterEnd(a);
  h.Advance(absl::Seconds(2));
  EXPECT_EQ(Refused(), 1u);
  EXPECT_EQ(Join(a, "worker2"), "2.1");
}

TEST_F(JobManagerTest, ManyTasksThatJoinOneByOneAreToldTogether) {
  h.CheckEvery(1000);
  constexpr int kNodes = 200;
  std::vector<NodeKey> nodes;
  for (int i = 0; i < kNodes; ++i) nodes.push_back(h.Up(absl::StrCat("n", i)));
  for (int i = 0; i < kNodes; ++i) {
    Join(nodes[static_cast<size_t>(i)], absl::StrCat("worker", i), {.world = kNodes});
    h.Advance(absl::Microseconds(100));
  }
  h.Advance(absl::Milliseconds(10));
  size_t updates = 0;
  for (const NodeKey& node : nodes) {
    std::map<uint32_t, uint64_t> known;
    for (const v1::JobUpdate& update : Updates(node)) {
      ++updates;
      for (const v1::JobMember& member : update.members()) known[member.rank()] = member.life();
    }
    EXPECT_EQ(known.size(), static_cast<size_t>(kNodes));
  }
  // One message to every node for every join would be 20,000.
  EXPECT_LT(updates, 5000u);
}

TEST_F(JobManagerTest, TheToolsSeeJobsAndTheirMembers) {
  const NodeKey a = h.Up("a"), b = h.Up("b");
  Join(a, "worker0");
  Join(b, "worker1");
  End(b, "worker1", 0);
  Join(a, "eval", {.world = 1, .role = "eval"});
  Join(a, "worker0", {.job = "other"});
  v1::ListJobsRequest list;
  list.set_limit(1);
  v1::ListJobsResponse listed;
  h.core().ListJobs(list, h.now(), &listed);
  ASSERT_EQ(listed.jobs_size(), 1);
  EXPECT_EQ(listed.jobs(0).job(), "other");
  EXPECT_TRUE(listed.more());
  v1::DescribeJobRequest request;
  request.set_job("train");
  request.set_limit(2);
  v1::DescribeJobResponse job;
  ASSERT_THAT(h.core().DescribeJob(request, h.now(), &job), IsOk());
  EXPECT_EQ(job.summary().nodes(), 1u);
  EXPECT_EQ(job.summary().roles(1).live(), 1u);
  EXPECT_EQ(job.summary().roles(1).died(), 1u);
  ASSERT_EQ(job.members_size(), 2);
  EXPECT_EQ(job.members(0).member().task(), "eval");
  EXPECT_TRUE(job.more());
  request.set_has_after(true);
  request.set_after_role("worker");
  request.set_after_rank(0);
  job.Clear();
  ASSERT_THAT(h.core().DescribeJob(request, h.now(), &job), IsOk());
  ASSERT_EQ(job.members_size(), 1);
  EXPECT_EQ(job.members(0).member().task(), "worker1");
  EXPECT_FALSE(job.more());
  request.set_job("none");
  EXPECT_THAT(h.core().DescribeJob(request, h.now(), &job),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("no job called none")));
}

}  // namespace
}  // namespace phalanx::directory
