#include "src/jobs/members/members.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "src/common/testing/status_matchers.h"
#include "src/jobs/testing/member_world.h"

namespace phalanx::jobs::testing {
namespace {

using ::phalanx::testing::IsOk;
using ::phalanx::testing::StatusIs;
using ::testing::HasSubstr;

constexpr absl::Duration kSoon = absl::Milliseconds(400);

JoinArguments Worker(int number, int world = 4) {
  return {"train", "worker", absl::StrCat("worker", number), world};
}

class MembersTest : public ::testing::Test {
 protected:
  explicit MembersTest(int nodes = 3) : w({.nodes = nodes}) { w.RunFor(kSoon); }
  ~MembersTest() override { EXPECT_THAT(w.broken(), IsOk()); }

  MemberWorld w;
};

TEST_F(MembersTest, EveryNodeWithAMemberSeesAllMembersInOrderOfRank) {
  const Client& two = w.Join(0, Worker(2));
  w.RunFor(kSoon);
  EXPECT_TRUE(two.live());
  EXPECT_EQ(two.member().rank, 2);
  const Client& zero = w.Join(1, Worker(0));
  w.RunFor(kSoon);
  EXPECT_EQ(zero.member().life, 0u);
  EXPECT_EQ(w.Seen(0, "train", "worker"), "worker0.0+ - worker2.0+ -");
  EXPECT_EQ(w.Seen(1, "train", "worker"), "worker0.0+ - worker2.0+ -");
  EXPECT_EQ(w.Seen(2, "train", "worker"), "unknown");
  const Member& member = w.members(1).ViewOf("train", "worker")->members[2];
  EXPECT_EQ(member.host, "10.0.0.0");
  EXPECT_EQ(member.node_name, "n0");
}

TEST_F(MembersTest, TheOthersHearWhetherAMemberLeftOrDied) {
  Client& zero = w.Join(0, Worker(0));
  Client& one = w.Join(1, Worker(1));
  Client& two = w.Join(1, Worker(2));
  w.RunFor(kSoon);
  w.End(one, MemberState::kLeft);
  w.End(two, MemberState::kDied);
  w.RunFor(kSoon);
  EXPECT_EQ(w.Seen(0, "train", "worker"), "worker0.0+ worker1.0= worker2.0- -");
  EXPECT_GT(zero.changes(), 0);
  w.Join(2, Worker(1));
  w.RunFor(kSoon);
  EXPECT_EQ(w.Seen(0, "train", "worker"), "worker0.0+ worker1.1+ worker2.0- -");
}

TEST_F(MembersTest, ANodeIsUsedForAsLongAsAMemberOnItIsLive) {
  w.Join(0, Worker(0));
  w.Join(1, Worker(1));
  Client& two = w.Join(1, Worker(2));
  w.RunFor(kSoon);
  const GroupView view = *w.members(0).ViewOf("train", "worker");
  const NodeKey one = view.members[1].node;
  EXPECT_TRUE(w.members(0).IsUsed(view.members[0].node));
  EXPECT_TRUE(w.members(0).IsUsed(one));
  EXPECT_FALSE(w.members(2).IsUsed(one));
  w.End(two, MemberState::kLeft);
  w.RunFor(kSoon);
  EXPECT_TRUE(w.members(0).IsUsed(one));
  // A member that joins anew on another node leaves its old one.
  w.Join(2, Worker(1));
  w.RunFor(kSoon);
  EXPECT_FALSE(w.members(0).IsUsed(one));
}

TEST_F(MembersTest, ANewerLifeReplacesTheOlderOne) {
  const Client& older = w.Join(0, Worker(0));
  w.RunFor(kSoon);
  const Client& newer = w.Join(1, Worker(0));
  w.RunFor(kSoon);
  EXPECT_THAT(older.why(), StatusIs(absl::StatusCode::kAborted,
                                    HasSubstr("a newer life of worker0 of job train has joined")));
  EXPECT_EQ(newer.member().life, 1u);
}

TEST_F(MembersTest, ANodeThatWasFencedLosesItsMembersAndTheyCanJoinAgain) {
  w.Join(0, Worker(0));
  const Client& one = w.Join(1, Worker(1));
  w.RunFor(kSoon);
  w.Cut(1);
  w.RunFor(absl::Seconds(3));
  EXPECT_EQ(w.Seen(0, "train", "worker"), "worker0.0+ worker1.0- - -");
  w.Heal(1);
  w.RunFor(kSoon);
  EXPECT_THAT(one.why(), StatusIs(absl::StatusCode::kAborted,
                                  HasSubstr("worker1 of job train was declared dead: node n1")));
  EXPECT_EQ(w.Join(1, Worker(1)).state(), Client::State::kJoining);
  w.RunFor(kSoon);
  EXPECT_EQ(w.Seen(0, "train", "worker"), "worker0.0+ worker1.1+ - -");
}

TEST_F(MembersTest, AShortCutEndsNothing) {
  w.Join(0, Worker(0));
  const Client& one = w.Join(1, Worker(1));
  w.RunFor(kSoon);
  w.Cut(1);
  w.RunFor(absl::Seconds(1));
  w.Heal(1);
  w.RunFor(kSoon);
  EXPECT_TRUE(one.live());
}

TEST_F(MembersTest, ARestartOfTheShardChangesNoViewAndGivesNoLifeTwice) {
  Client& zero = w.Join(0, Worker(0));
  Client& one = w.Join(1, Worker(1));
  w.RunFor(kSoon);
  const JobEpoch before = w.members(0).ViewOf("train", "worker")->epoch;
  w.StopShard();
  w.End(one, MemberState::kDied);
  const int changes = zero.changes();
  w.StartShard();
  w.RunFor(kSoon);
  const Client& again = w.Join(2, Worker(1));
  w.RunFor(kSoon);
  // The shard learns for a lease.
  EXPECT_EQ(again.state(), Client::State::kJoining);
  EXPECT_EQ(zero.changes(), changes);
  w.RunFor(absl::Seconds(2));
  EXPECT_EQ(again.member().life, 1u);
  EXPECT_EQ(w.Seen(0, "train", "worker"), "worker0.0+ worker1.1+ - -");
  EXPECT_LT(before, w.members(0).ViewOf("train", "worker")->epoch);
}

TEST_F(MembersTest, AJoinWhoseShardIsAwayEndsWithItsDeadlineAndLeavesNothing) {
  w.Join(0, Worker(0));
  w.RunFor(kSoon);
  w.Cut(1);
  const Client& one = w.Join(1, Worker(1), absl::Milliseconds(500));
  w.RunFor(absl::Seconds(1));
  EXPECT_THAT(one.why(), StatusIs(absl::StatusCode::kDeadlineExceeded,
                                  HasSubstr("worker1 of job train: shard 0 of the directory has "
                                            "not answered node n1 in time")));
  w.Heal(1);
  w.RunFor(kSoon);
  // The shard had been asked: the member without a waiting Join ends at once.
  EXPECT_EQ(w.Seen(0, "train", "worker"), "worker0.0+ worker1.0- - -");
  EXPECT_EQ(w.members(1).stats().joining, 0u);
}

TEST_F(MembersTest, BadArgumentsAreErrorsThatNameThem) {
  const auto refused = [this](JoinArguments arguments) {
    return w.Join(0, std::move(arguments)).why();
  };
  EXPECT_THAT(refused({"", "worker", "w", 4}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("a job needs a name")));
  EXPECT_THAT(refused(Worker(0, 0)),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("worker0 of job train: a world has 1 to 65536 tasks, not 0")));
  EXPECT_THAT(refused({"train", "worker", "w", 4, 4}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("rank 4 is not in a world")));
  w.Join(0, Worker(0));
  const Client& other = w.Join(1, Worker(1, 5));
  w.RunFor(kSoon);
  EXPECT_THAT(other.why(), StatusIs(absl::StatusCode::kInvalidArgument,
                                    HasSubstr("has a world of 4, but worker1 joins with a world of "
                                              "5")));
}

TEST_F(MembersTest, AJobWithoutMembersHereIsForgottenAfterAMinute) {
  Client& zero = w.Join(0, Worker(0));
  w.RunFor(kSoon);
  w.End(zero, MemberState::kLeft);
  w.RunFor(absl::Seconds(59));
  EXPECT_EQ(w.members(0).stats().jobs, 1u);
  w.RunFor(absl::Seconds(2));
  EXPECT_EQ(w.members(0).stats().jobs, 0u);
}

class ManyMembersTest : public MembersTest {
 protected:
  ManyMembersTest() : MembersTest(50) {}
};

TEST_F(ManyMembersTest, TheMessagesForAMemberDoNotGrowWithTheJob) {
  constexpr int kWorld = 1000;
  const auto messages_for = [this](int begin, int end) {
    const uint64_t before = w.messages();
    for (int i = begin; i < end; ++i) w.Join(i % 50, Worker(i, kWorld));
    w.RunFor(absl::Seconds(1));
    return static_cast<double>(w.messages() - before) / (end - begin);
  };
  const double first = messages_for(0, 200);
  const double last = messages_for(800, 1000);
  EXPECT_LT(last, 1.2 * first + 1);
  EXPECT_LT(last, 20);
  for (const auto& client : w.clients()) EXPECT_TRUE(client->live());
}

}  // namespace
}  // namespace phalanx::jobs::testing
