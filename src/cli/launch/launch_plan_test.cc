#include "src/cli/launch/launch_plan.h"

#include <signal.h>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "src/common/testing/status_matchers.h"

namespace phalanx::runtime {
namespace {

using ::phalanx::testing::IsOkAndHolds;
using ::phalanx::testing::StatusIs;
using ::testing::HasSubstr;
using Next = LaunchPlan::Next;

LaunchPlan Running(size_t tasks, int restarts = 0) {
  LaunchPlan plan(tasks, restarts);
  for (size_t task = 0; task < tasks; ++task) plan.Started();
  return plan;
}

TEST(LaunchPlanTest, EndsWithZeroWhenEveryTaskHas) {
  LaunchPlan plan = Running(3, /*restarts=*/5);
  for (const size_t task : {2, 0, 1}) {
    EXPECT_FALSE(plan.finished());
    EXPECT_EQ(plan.Ended(task, 0, /*declared=*/false), Next::kNothing);
  }
  EXPECT_TRUE(plan.finished());
  EXPECT_FALSE(plan.stopping());
  EXPECT_EQ(plan.exit_code(), 0);
  EXPECT_EQ(plan.restarts_left(), 5);
}

TEST(LaunchPlanTest, AFailedTaskIsStartedInItsNextLife) {
  LaunchPlan plan = Running(2, /*restarts=*/3);
  EXPECT_EQ(plan.Ended(1, 7, /*declared=*/false), Next::kStart);
  plan.Started();
  EXPECT_EQ(plan.life(0), 0);
  EXPECT_EQ(plan.life(1), 1);
  EXPECT_EQ(plan.Ended(1, 137, /*declared=*/false), Next::kStart);
  plan.Started();
  EXPECT_EQ(plan.life(1), 2);
  EXPECT_EQ(plan.restarts_left(), 1);
  EXPECT_EQ(plan.Ended(0, 0, /*declared=*/false), Next::kNothing);
  EXPECT_FALSE(plan.finished());
  EXPECT_EQ(plan.Ended(1, 0, /*declared=*/false), Next::kNothing);
  EXPECT_TRUE(plan.finished());
  EXPECT_EQ(plan.exit_code(), 0);
}

TEST(LaunchPlanTest, TasksShareTheRestarts) {
  LaunchPlan plan = Running(3, /*restarts=*/2);
  EXPECT_EQ(plan.Ended(0, 1, /*declared=*/false), Next::kStart);
  plan.Started();
  EXPECT_EQ(plan.Ended(1, 1, /*declared=*/false), Next::kStart);
  plan.Started();
  EXPECT_EQ(plan.Ended(2, 9, /*declared=*/false), Next::kStop);
  EXPECT_EQ(plan.life(2), 0);
}

TEST(LaunchPlanTest, TheFirstFailureWithoutARestartIsTheExitCode) {
  LaunchPlan plan = Running(3);
  EXPECT_EQ(plan.Ended(1, 7, /*declared=*/false), Next::kStop);
  EXPECT_TRUE(plan.stopping());
  // Stopped by the launch: 128 + SIGTERM. Another fails on its own meanwhile.
  EXPECT_EQ(plan.Ended(0, 143, /*declared=*/false), Next::kNothing);
  EXPECT_FALSE(plan.finished());
  EXPECT_EQ(plan.Ended(2, 9, /*declared=*/false), Next::kNothing);
  EXPECT_TRUE(plan.finished());
  EXPECT_EQ(plan.exit_code(), 7);
}

TEST(LaunchPlanTest, NoTaskIsStartedAgainAfterAStop) {
  LaunchPlan plan = Running(2, /*restarts=*/10);
  EXPECT_TRUE(plan.Stop(130));
  EXPECT_EQ(plan.Ended(0, 130, /*declared=*/false), Next::kNothing);
  EXPECT_EQ(plan.Ended(1, 0, /*declared=*/false), Next::kNothing);
  EXPECT_TRUE(plan.finished());
  EXPECT_EQ(plan.exit_code(), 130);
  EXPECT_EQ(plan.restarts_left(), 10);
}

TEST(LaunchPlanTest, ASecondReasonToStopDoesNotCount) {
  LaunchPlan plan = Running(2);
  EXPECT_EQ(plan.Ended(0, 3, /*declared=*/false), Next::kStop);
  EXPECT_FALSE(plan.Stop(143));
  EXPECT_EQ(plan.Ended(1, 0, /*declared=*/false), Next::kNothing);
  EXPECT_EQ(plan.exit_code(), 3);
}

TEST(LaunchPlanTest, AStopBeforeTheLastTaskWasStartedWaitsForTheOthers) {
  LaunchPlan plan(3, /*restarts=*/1);
  plan.Started();
  EXPECT_TRUE(plan.Stop(127));
  EXPECT_FALSE(plan.finished());
  EXPECT_EQ(plan.Ended(0, 143, /*declared=*/false), Next::kNothing);
  EXPECT_TRUE(plan.finished());
  EXPECT_EQ(plan.exit_code(), 127);
}

constexpr Instant kNow = Instant::FromNanos(5'000'000'000);

TEST(LaunchPlanTest, TheFirstSignalStopsAndTheSecondKills) {
  LaunchPlan plan = Running(2, /*restarts=*/1);
  EXPECT_EQ(plan.Signalled(SIGINT, kNow), Next::kStop);
  EXPECT_TRUE(plan.stopping());
  EXPECT_EQ(plan.exit_code(), 130);
  EXPECT_EQ(plan.Signalled(SIGINT, kNow), Next::kKill);
  EXPECT_EQ(plan.exit_code(), 130);
}

TEST(LaunchPlanTest, ASignalThatArrivesTwiceWithinASecondIsOne) {
  LaunchPlan plan = Running(1);
  EXPECT_EQ(plan.Signalled(SIGTERM, kNow), Next::kStop);
  EXPECT_EQ(plan.Signalled(SIGTERM, kNow), Next::kNothing);
  EXPECT_EQ(plan.Signalled(SIGHUP, kNow + absl::Milliseconds(999)), Next::kNothing);
  EXPECT_EQ(plan.Signalled(SIGTERM, kNow + absl::Seconds(1)), Next::kKill);
}

TEST(LaunchPlanTest, TheFirstSignalAfterAFailureDoesNotKill) {
  for (const int number : {SIGINT, SIGTERM}) {
    LaunchPlan plan = Running(2);
    EXPECT_EQ(plan.Ended(0, 7, /*declared=*/false), Next::kStop);
    EXPECT_EQ(plan.Signalled(number, kNow), Next::kNothing);
    EXPECT_EQ(plan.Signalled(number, kNow + absl::Seconds(2)), Next::kKill);
    EXPECT_EQ(plan.exit_code(), 7);
  }
}

LaunchPlan WithDeaths(DeclaredDeaths deaths, int restarts) {
  LaunchPlan plan(deaths.size(), restarts, deaths);
  for (size_t task = 0; task < deaths.size(); ++task) plan.Started();
  return plan;
}

TEST(LaunchPlanTest, EachLifeHasItsDeclaredDeath) {
  LaunchPlan plan = WithDeaths({{}, {57, 3}}, /*restarts=*/2);
  EXPECT_EQ(plan.death(0), std::nullopt);
  EXPECT_EQ(plan.death(1), 57u);
  EXPECT_EQ(plan.Ended(1, 128 + SIGKILL, /*declared=*/true), Next::kStart);
  plan.Started();
  EXPECT_EQ(plan.death(1), 3u);
  EXPECT_EQ(plan.Ended(1, 128 + SIGKILL, /*declared=*/true), Next::kStart);
  plan.Started();
  EXPECT_EQ(plan.death(1), std::nullopt);
  EXPECT_EQ(plan.Ended(1, 0, /*declared=*/false), Next::kNothing);
  EXPECT_EQ(plan.Ended(0, 0, /*declared=*/false), Next::kNothing);
  EXPECT_TRUE(plan.finished());
  EXPECT_EQ(plan.exit_code(), 0);
}

TEST(LaunchPlanTest, ADeclaredDeathThatDoesNotHappenFailsTheLaunch) {
  for (const int code : {0, 3, 128 + SIGTERM, 128 + SIGKILL}) {
    LaunchPlan plan = WithDeaths({{57}, {}}, /*restarts=*/5);
    EXPECT_TRUE(plan.MissedDeath(0, code, /*declared=*/false));
    EXPECT_FALSE(plan.MissedDeath(1, code, /*declared=*/false));
    EXPECT_EQ(plan.Ended(0, code, /*declared=*/false), Next::kStop);
    EXPECT_EQ(plan.exit_code(), 1);
  }
}

TEST(LaunchPlanTest, ADeclaredDeathWithoutARestartIsAFailureLikeOthers) {
  LaunchPlan plan = WithDeaths({{57}}, /*restarts=*/0);
  EXPECT_EQ(plan.Ended(0, 128 + SIGKILL, /*declared=*/true), Next::kStop);
  EXPECT_EQ(plan.exit_code(), 128 + SIGKILL);
}

TEST(LaunchPlanTest, TasksThatTheLaunchStopsMissNoDeath) {
  LaunchPlan plan = WithDeaths({{}, {57}}, /*restarts=*/0);
  EXPECT_EQ(plan.Ended(0, 3, /*declared=*/false), Next::kStop);
  EXPECT_FALSE(plan.MissedDeath(1, 128 + SIGTERM, /*declared=*/false));
  EXPECT_EQ(plan.Ended(1, 128 + SIGTERM, /*declared=*/false), Next::kNothing);
  EXPECT_EQ(plan.exit_code(), 3);
}

TEST(ParseDeathsTest, SortsThemByTask) {
  const auto deaths = ParseDeaths({"5@57", "4@1", "5@3"}, /*first=*/4, /*tasks=*/2, /*world=*/8);
  EXPECT_THAT(deaths, IsOkAndHolds(DeclaredDeaths{{1}, {57, 3}}));
}

TEST(ParseDeathsTest, LeavesOutThoseOfOtherLaunches) {
  EXPECT_THAT(ParseDeaths({"3@1", "6@1", "0@1"}, /*first=*/4, /*tasks=*/2, /*world=*/8),
              IsOkAndHolds(DeclaredDeaths{{}, {}}));
}

TEST(ParseDeathsTest, RefusesOtherTexts) {
  for (const char* text : {"", "3", "3@", "@3", "3@0", "3@-1", "3@1@1", "a@1", "3@1.5"}) {
    EXPECT_THAT(ParseDeaths({text}, 0, 4, 4), StatusIs(absl::StatusCode::kInvalidArgument)) << text;
  }
  EXPECT_THAT(ParseDeaths({"4@1"}, 0, 4, 4),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("there is no task 4 in a world of 4")));
  EXPECT_THAT(ParseDeaths({"-1@1"}, 0, 4, 4), StatusIs(absl::StatusCode::kInvalidArgument));
}

}  // namespace
}  // namespace phalanx::runtime
