// Members of jobs, as clients of a real node are; the shard of the jobs is a real core.
#include "phalanx/job.h"

#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "src/common/testing/status_matchers.h"
#include "src/local/testing/local_node.h"

namespace phalanx {
namespace {

using ::phalanx::object_store::testing::JobShard;
using ::phalanx::object_store::testing::LocalNode;
using ::phalanx::testing::IsOk;
using ::phalanx::testing::StatusIs;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr absl::Duration kLong = absl::Seconds(30);

class JobTest : public ::testing::Test {
 protected:
  std::shared_ptr<Client> Connect() {
    ClientOptions options;
    options.address = node_.address();
    auto client = Client::Connect(options);
    EXPECT_THAT(client, IsOk());
    return *client;
  }
  static JoinOptions World(int world) {
    JoinOptions options;
    options.world = world;
    return options;
  }
  // Waits for changes until the member sees this in its role: "worker0.0+ -".
  static std::string AwaitSeen(const Membership& member, const std::string& wanted) {
    for (uint64_t change = 0;;) {
      std::string seen;
      for (const Member& other : member.Members()) {
        absl::StrAppend(&seen, seen.empty() ? "" : " ");
        if (other.state == MemberState::kAbsent) {
          absl::StrAppend(&seen, "-");
        } else {
          absl::StrAppend(&seen, other.task, ".", other.life,
                          other.live()                        ? "+"
                          : other.state == MemberState::kLeft ? "="
                                                              : "-");
        }
      }
      if (seen == wanted) return seen;
      const absl::StatusOr<uint64_t> next = member.WaitForChange(change, kLong);
      if (!next.ok()) return absl::StrCat(seen, ": ", next.status().ToString());
      change = *next;
    }
  }

  LocalNode node_;
  std::shared_ptr<Client> client_ = Connect();
};

TEST_F(JobTest, AMemberKnowsItsPlaceAndTheOthers) {
  PHALANX_ASSERT_OK_AND_ASSIGN(const Membership one, client_->Join("train", "worker1", World(2)));
  EXPECT_EQ(one.rank(), 1);
  EXPECT_EQ(one.life(), 0u);
  EXPECT_EQ(one.world(), 2);
  EXPECT_EQ(one.role(), "worker");
  EXPECT_THAT(one.status(), IsOk());
  EXPECT_EQ(AwaitSeen(one, "- worker1.0+"), "- worker1.0+");
  EXPECT_THAT(one.Hosts(), ElementsAre("", "10.0.0.1"));
  EXPECT_EQ(one.Members()[1].node, "node-a");
  const auto other = Connect();
  PHALANX_ASSERT_OK_AND_ASSIGN(const Membership zero, other->Join("train", "worker0", World(2)));
  EXPECT_THAT(zero.WaitForWorld(kLong), IsOk());
  EXPECT_THAT(one.WaitForWorld(kLong), IsOk());
  EXPECT_EQ(AwaitSeen(one, "worker0.0+ worker1.0+"), "worker0.0+ worker1.0+");
  EXPECT_TRUE(one.Members("ps").empty());
}

TEST_F(JobTest, TheOthersSeeWhoLeftAndWhoDied) {
  PHALANX_ASSERT_OK_AND_ASSIGN(const Membership zero, client_->Join("train", "worker0", World(4)));
  const auto second = Connect();
  auto third = Connect();
  PHALANX_ASSERT_OK_AND_ASSIGN(const Membership one, second->Join("train", "worker1", World(4)));
  absl::StatusOr<Membership> dropped = second->Join("train", "worker2", World(4));
  PHALANX_ASSERT_OK(dropped.status());
  PHALANX_ASSERT_OK(third->Join("train", "worker3", World(4)).status());
  EXPECT_THAT(one.Leave(), IsOk());
  EXPECT_THAT(one.status(), StatusIs(absl::StatusCode::kFailedPrecondition,
                                     HasSubstr("worker1 of job train has left")));
  dropped = absl::CancelledError("dropped");
  second->Poll();
  third->Close();
  EXPECT_EQ(AwaitSeen(zero, "worker0.0+ worker1.0= worker2.0- worker3.0-"),
            "worker0.0+ worker1.0= worker2.0- worker3.0-");
  EXPECT_THAT(zero.WaitForWorld(absl::ZeroDuration()),
              StatusIs(absl::StatusCode::kDeadlineExceeded,
                       HasSubstr("3 of 4 tasks of role worker are missing: worker1 (life 0 left), "
                                 "worker2 (life 0 died), worker3 (life 0 died)")));
}

TEST_F(JobTest, ANewerLifeEndsTheOlderOneWithAborted) {
  PHALANX_ASSERT_OK_AND_ASSIGN(const Membership older, client_->Join("train", "worker0", World(2)));
  const auto other = Connect();
  PHALANX_ASSERT_OK_AND_ASSIGN(const Membership newer, other->Join("train", "worker0", World(2)));
  EXPECT_EQ(newer.life(), 1u);
  EXPECT_THAT(older.WaitForWorld(kLong),
              StatusIs(absl::StatusCode::kAborted,
                       HasSubstr("a newer life of worker0 of job train has joined")));
  EXPECT_THAT(older.status(), StatusIs(absl::StatusCode::kAborted, HasSubstr("newer life")));
  EXPECT_THAT(newer.status(), IsOk());
}

TEST_F(JobTest, CallbacksAreGivenEachChange) {
  PHALANX_ASSERT_OK_AND_ASSIGN(const Membership zero, client_->Join("train", "worker0", World(2)));
  std::vector<std::string> heard;
  zero.OnMember([&heard](const Member& member) {
    heard.push_back(absl::StrCat(member.task, member.live() ? "+" : "-"));
  });
  auto other = Connect();
  PHALANX_ASSERT_OK(other->Join("train", "worker1", World(2)).status());
  other->Close();
  while (heard.size() < 2) client_->Poll(kLong);
  EXPECT_THAT(heard, ElementsAre("worker1+", "worker1-"));
}

TEST_F(JobTest, BadArgumentsAreErrorsThatNameThem) {
  const auto refused = [this](const std::string& job, const std::string& task,
                              JoinOptions options) {
    return client_->Join(job, task, std::move(options)).status();
  };
  EXPECT_THAT(refused("", "w", World(1)),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("no job is given, and PHALANX_JOB is not set")));
  EXPECT_THAT(refused("j", "", World(1)),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("PHALANX_TASK is not set")));
  EXPECT_THAT(refused("j", "w", {}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("PHALANX_WORLD is not set")));
  EXPECT_THAT(refused("j", std::string(256, 'w'), World(1)),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("at most 255 bytes")));
  EXPECT_THAT(refused("j", "w", World(65537)),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("a world has 1 to 65536 tasks, not 65537")));
  EXPECT_THAT(refused("j", "w", World(-1)),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("in a world of -1")));
  JoinOptions far = World(2);
  far.rank = 2;
  EXPECT_THAT(refused("j", "w", far), StatusIs(absl::StatusCode::kInvalidArgument,
                                               HasSubstr("rank 2 is not in a world of 2")));
  PHALANX_ASSERT_OK_AND_ASSIGN(const Membership member, client_->Join("j", "w", World(2)));
  EXPECT_THAT(refused("j", "x", World(3)),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("role worker of job j has a world of 2, but x joins with a world "
                                 "of 3")));
  JoinOptions taken = World(2);
  taken.rank = 0;
  EXPECT_THAT(refused("j", "x", taken),
              StatusIs(absl::StatusCode::kAlreadyExists, HasSubstr("belongs to task w")));
}

TEST_F(JobTest, WhatIsNotGivenComesFromTheVariablesOfLaunch) {
  setenv("PHALANX_JOB", "launched", 1);
  setenv("PHALANX_TASK", "ps1", 1);
  setenv("PHALANX_ROLE", "ps", 1);
  setenv("PHALANX_WORLD", "2", 1);
  const absl::StatusOr<Membership> member = client_->Join("", "", {});
  setenv("PHALANX_WORLD", "two", 1);
  const absl::Status bad = client_->Join("", "", {}).status();
  for (const char* name : {"PHALANX_JOB", "PHALANX_TASK", "PHALANX_ROLE", "PHALANX_WORLD"}) {
    unsetenv(name);
  }
  PHALANX_ASSERT_OK(member.status());
  EXPECT_EQ(member->job(), "launched");
  EXPECT_EQ(member->role(), "ps");
  EXPECT_EQ(member->rank(), 1);
  EXPECT_THAT(bad,
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("PHALANX_WORLD is \"two\"")));
}

TEST_F(JobTest, ADirectoryThatIsAwayEndsTheJoinWithItsDeadline) {
  node_.OnLoop([this] { node_.jobs().Silence(); });
  JoinOptions options = World(2);
  options.timeout = absl::Milliseconds(50);
  EXPECT_THAT(client_->Join("train", "worker0", options).status(),
              StatusIs(absl::StatusCode::kDeadlineExceeded,
                       HasSubstr("worker0 of job train: shard 0 of the directory has not answered "
                                 "node node-a in time")));
}

TEST_F(JobTest, AChildOfForkIsNoMember) {
  PHALANX_ASSERT_OK_AND_ASSIGN(const Membership zero, client_->Join("train", "worker0", World(1)));
  const pid_t child = fork();
  if (child == 0) {
    const bool refused = absl::IsFailedPrecondition(zero.Leave()) &&
                         absl::IsFailedPrecondition(zero.status()) && zero.Members().empty();
    _exit(refused ? 0 : 1);
  }
  int status = 1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_THAT(zero.status(), IsOk());
  EXPECT_THAT(zero.WaitForWorld(kLong), IsOk());
}

}  // namespace
}  // namespace phalanx
