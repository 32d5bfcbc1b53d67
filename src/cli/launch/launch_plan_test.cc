#include "src/cli/launch/launch_plan.h"

#include <signal.h>

#include "gtest/gtest.h"

namespace phalanx::runtime {
namespace {

using Next = LaunchPlan::Next;

LaunchPlan Running(size_t tasks, int restarts = 0, size_t servers = 0) {
  LaunchPlan plan(tasks, restarts, {.servers = servers});
  for (size_t task = 0; task < tasks; ++task) plan.Started();
  return plan;
}

TEST(LaunchPlanTest, EndsWithZeroWhenEveryTaskHas) {
  LaunchPlan plan = Running(3, /*restarts=*/5);
  for (const size_t task : {2, 0, 1}) {
    EXPECT_FALSE(plan.finished());
    EXPECT_EQ(plan.Ended(task, 0), Next::kNothing);
  }
  EXPECT_TRUE(plan.finished());
  EXPECT_FALSE(plan.stopping());
  EXPECT_EQ(plan.exit_code(), 0);
  EXPECT_EQ(plan.restarts_left(), 5);
}

TEST(LaunchPlanTest, AFailedTaskIsStartedInItsNextLife) {
  LaunchPlan plan = Running(2, /*restarts=*/3);
  EXPECT_EQ(plan.Ended(1, 7), Next::kStart);
  plan.Started();
  EXPECT_EQ(plan.life(0), 0);
  EXPECT_EQ(plan.life(1), 1);
  EXPECT_EQ(plan.Ended(1, 137), Next::kStart);
  plan.Started();
  EXPECT_EQ(plan.life(1), 2);
  EXPECT_EQ(plan.restarts_left(), 1);
  EXPECT_EQ(plan.Ended(0, 0), Next::kNothing);
  EXPECT_FALSE(plan.finished());
  EXPECT_EQ(plan.Ended(1, 0), Next::kNothing);
  EXPECT_TRUE(plan.finished());
  EXPECT_EQ(plan.exit_code(), 0);
}

TEST(LaunchPlanTest, TasksShareTheRestarts) {
  LaunchPlan plan = Running(3, /*restarts=*/2);
  EXPECT_EQ(plan.Ended(0, 1), Next::kStart);
  plan.Started();
  EXPECT_EQ(plan.Ended(1, 1), Next::kStart);
  plan.Started();
  EXPECT_EQ(plan.Ended(2, 9), Next::kStop);
  EXPECT_EQ(plan.life(2), 0);
}

TEST(LaunchPlanTest, TheFirstFailureWithoutARestartIsTheExitCode) {
  LaunchPlan plan = Running(3);
  EXPECT_EQ(plan.Ended(1, 7), Next::kStop);
  EXPECT_TRUE(plan.stopping());
  // Stopped by the launch: 128 + SIGTERM. Another fails on its own meanwhile.
  EXPECT_EQ(plan.Ended(0, 143), Next::kNothing);
  EXPECT_FALSE(plan.finished());
  EXPECT_EQ(plan.Ended(2, 9), Next::kNothing);
  EXPECT_TRUE(plan.finished());
  EXPECT_EQ(plan.exit_code(), 7);
}

TEST(LaunchPlanTest, NoTaskIsStartedAgainAfterAStop) {
  LaunchPlan plan = Running(2, /*restarts=*/10);
  EXPECT_TRUE(plan.Stop(130));
  EXPECT_EQ(plan.Ended(0, 130), Next::kNothing);
  EXPECT_EQ(plan.Ended(1, 0), Next::kNothing);
  EXPECT_TRUE(plan.finished());
  EXPECT_EQ(plan.exit_code(), 130);
  EXPECT_EQ(plan.restarts_left(), 10);
}

TEST(LaunchPlanTest, ASecondReasonToStopDoesNotCount) {
  LaunchPlan plan = Running(2);
  EXPECT_EQ(plan.Ended(0, 3), Next::kStop);
  EXPECT_FALSE(plan.Stop(143));
  EXPECT_EQ(plan.Ended(1, 0), Next::kNothing);
  EXPECT_EQ(plan.exit_code(), 3);
}

TEST(LaunchPlanTest, AStopBeforeTheLastTaskWasStartedWaitsForTheOthers) {
  LaunchPlan plan(3, /*restarts=*/1);
  plan.Started();
  EXPECT_TRUE(plan.Stop(127));
  EXPECT_FALSE(plan.finished());
  EXPECT_EQ(plan.Ended(0, 143), Next::kNothing);
  EXPECT_TRUE(plan.finished());
  EXPECT_EQ(plan.exit_code(), 127);
}

TEST(LaunchPlanTest, ServersEndAfterTheWorkers) {
  LaunchPlan plan = Running(4, /*restarts=*/0, /*servers=*/2);
  EXPECT_EQ(plan.Ended(3, 0), Next::kNothing);
  EXPECT_FALSE(plan.awaits_servers());
  EXPECT_EQ(plan.Ended(2, 0), Next::kNothing);
  EXPECT_TRUE(plan.awaits_servers());
  EXPECT_EQ(plan.Ended(0, 0), Next::kNothing);
  EXPECT_FALSE(plan.finished());
  EXPECT_EQ(plan.Ended(1, 0), Next::kNothing);
  EXPECT_TRUE(plan.finished());
  EXPECT_EQ(plan.exit_code(), 0);
}

TEST(LaunchPlanTest, ServersAreNotAwaitedWhileAWorkerIsToBeStartedAgain) {
  LaunchPlan plan = Running(2, /*restarts=*/2, /*servers=*/1);
  EXPECT_EQ(plan.Ended(1, 9), Next::kStart);
  EXPECT_FALSE(plan.awaits_servers());
  plan.Started();
  EXPECT_EQ(plan.Ended(0, 0), Next::kNothing);  // a server that ends early is done
  EXPECT_FALSE(plan.awaits_servers());
  EXPECT_EQ(plan.Ended(1, 0), Next::kNothing);
  EXPECT_TRUE(plan.finished());
  EXPECT_EQ(plan.exit_code(), 0);
}

TEST(LaunchPlanTest, AServerThatFailsWhenTheWorkersHaveEndedIsStartedAgain) {
  LaunchPlan plan = Running(3, /*restarts=*/2, /*servers=*/1);
  EXPECT_EQ(plan.Ended(1, 0), Next::kNothing);
  EXPECT_EQ(plan.Ended(2, 7), Next::kStart);  // tasks of both roles share the restarts
  plan.Started();
  EXPECT_EQ(plan.Ended(2, 0), Next::kNothing);
  EXPECT_EQ(plan.Ended(0, 137), Next::kStart);
  EXPECT_TRUE(plan.awaits_servers());
  EXPECT_EQ(plan.life(0), 1);
  plan.Started();
  // It can have had the result to write.
  EXPECT_EQ(plan.Ended(0, 4), Next::kStop);
  EXPECT_FALSE(plan.awaits_servers());
  EXPECT_EQ(plan.exit_code(), 4);
}

TEST(LaunchPlanTest, WithoutServersNoneAreAwaited) {
  LaunchPlan plan = Running(2);
  EXPECT_EQ(plan.Ended(0, 0), Next::kNothing);
  EXPECT_EQ(plan.Ended(1, 0), Next::kNothing);
  EXPECT_FALSE(plan.awaits_servers());
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
    EXPECT_EQ(plan.Ended(0, 7), Next::kStop);
    EXPECT_EQ(plan.Signalled(number, kNow), Next::kNothing);
    EXPECT_EQ(plan.Signalled(number, kNow + absl::Seconds(2)), Next::kKill);
    EXPECT_EQ(plan.exit_code(), 7);
  }
}

TEST(LaunchPlanTest, AMissedDeathFailsTheLaunch) {
  for (const int code : {0, 3, 128 + SIGTERM, 128 + SIGKILL}) {
    LaunchPlan plan = Running(2, /*restarts=*/5);
    EXPECT_EQ(plan.Ended(0, code, /*missed=*/true), Next::kStop);
    EXPECT_EQ(plan.Ended(1, 128 + SIGTERM), Next::kNothing);
    EXPECT_EQ(plan.exit_code(), kMissedDeath);
    EXPECT_EQ(plan.restarts_left(), 5);
  }
}

TEST(LaunchPlanTest, ADeathThatIsMissedWhileTheLaunchStopsChangesNothing) {
  LaunchPlan plan = Running(2);
  EXPECT_EQ(plan.Ended(0, 3), Next::kStop);
  EXPECT_EQ(plan.Ended(1, 128 + SIGTERM, /*missed=*/true), Next::kNothing);
  EXPECT_EQ(plan.exit_code(), 3);
}

TEST(LaunchPlan, ASpareTakesTheFirstPartThatIsNotStartedAgain) {
  // Server 0 and 1, worker 2, spares 3 and 4.
  LaunchPlan plan(5, /*restarts=*/1, {.servers = 2, .spares = 2, .spares_of_job = 2});
  for (int i = 0; i < 5; ++i) plan.Started();
  EXPECT_EQ(plan.Ended(1, 137), LaunchPlan::Next::kStart);
  plan.Started();
  EXPECT_EQ(plan.Ended(1, 137), LaunchPlan::Next::kSpare);
  EXPECT_EQ(plan.spares_left(), 1u);
  // The spare with the part, and then the other one.
  EXPECT_EQ(plan.Ended(3, 1), LaunchPlan::Next::kSpare);
  EXPECT_FALSE(plan.TakeOnlySpares());
  EXPECT_EQ(plan.Ended(0, 9), LaunchPlan::Next::kStop);
  EXPECT_EQ(plan.exit_code(), 9);
}

TEST(LaunchPlan, SparesThatAreNotNeededAreEnded) {
  LaunchPlan plan(4, /*restarts=*/0, {.servers = 1, .spares = 2, .spares_of_job = 2});
  for (int i = 0; i < 4; ++i) plan.Started();
  EXPECT_FALSE(plan.spares_serve());
  EXPECT_EQ(plan.Ended(0, 137), LaunchPlan::Next::kSpare);
  EXPECT_EQ(plan.Ended(1, 0), LaunchPlan::Next::kNothing);
  // The one with the part still runs.
  EXPECT_TRUE(plan.awaits_servers());
  EXPECT_TRUE(plan.spares_serve());
  EXPECT_FALSE(plan.TakeOnlySpares());
  EXPECT_EQ(plan.Ended(2, 0), LaunchPlan::Next::kNothing);
  EXPECT_FALSE(plan.spares_serve());
  EXPECT_TRUE(plan.TakeOnlySpares());
  EXPECT_FALSE(plan.TakeOnlySpares());
  EXPECT_EQ(plan.Ended(3, 143), LaunchPlan::Next::kNothing);
  EXPECT_TRUE(plan.finished());
  EXPECT_EQ(plan.exit_code(), 0);
}

LaunchPlan WithSpares(int spares, bool alone = true) {
  const auto count = static_cast<size_t>(spares);
  // Servers 0 and 1, worker 2, and the spares.
  LaunchPlan plan(3 + count, /*restarts=*/0,
                  {.servers = 2, .spares = count, .spares_of_job = count, .alone = alone});
  for (int i = 0; i < 3 + spares; ++i) plan.Started();
  return plan;
}
using Parts = std::vector<int>;

TEST(LaunchPlan, AServerThatFailsWhenTheWorkersHaveEndedFailsTheLaunchThoughThereAreSpares) {
  LaunchPlan plan = WithSpares(2);
  EXPECT_EQ(plan.Ended(2, 0), LaunchPlan::Next::kNothing);
  EXPECT_EQ(plan.Ended(0, 7), LaunchPlan::Next::kStop);
  EXPECT_EQ(plan.exit_code(), 7);
}

// It had left the job, so that no spare has taken its part.
TEST(LaunchPlan, AServerWhosePartNoSpareHasHadFailsTheLaunch) {
  LaunchPlan plan = WithSpares(2);
  EXPECT_EQ(plan.Ended(1, 7), LaunchPlan::Next::kSpare);
  EXPECT_EQ(plan.Ended(2, 0), LaunchPlan::Next::kNothing);
  EXPECT_EQ(plan.Ended(0, 0), LaunchPlan::Next::kNothing);
  EXPECT_EQ(plan.Ended(3, 0, false, Parts{}), LaunchPlan::Next::kNothing);
  EXPECT_EQ(plan.Ended(4, 0, false, Parts{}), LaunchPlan::Next::kNothing);
  ASSERT_TRUE(plan.finished());
  ASSERT_TRUE(plan.lost().has_value());
  EXPECT_EQ(plan.lost()->server, 1u);
  EXPECT_EQ(plan.lost()->code, 7);
}

TEST(LaunchPlan, AServerWhosePartASpareHasHadToTheEndDoesNot) {
  LaunchPlan plan = WithSpares(2);
  EXPECT_EQ(plan.Ended(1, 7), LaunchPlan::Next::kSpare);
  // The first one with the part dies too.
  EXPECT_EQ(plan.Ended(3, 9, false, Parts{1}), LaunchPlan::Next::kSpare);
  EXPECT_EQ(plan.lost()->code, 9);
  EXPECT_EQ(plan.Ended(2, 0), LaunchPlan::Next::kNothing);
  EXPECT_EQ(plan.Ended(0, 0), LaunchPlan::Next::kNothing);
  EXPECT_EQ(plan.Ended(4, 0, false, Parts{1}), LaunchPlan::Next::kNothing);
  ASSERT_TRUE(plan.finished());
  EXPECT_FALSE(plan.lost().has_value());
}

// A spare whose program is in a container cannot write to the launch's file.
TEST(LaunchPlan, ASpareThatDoesNotSaySoCanHaveHadAPart) {
  LaunchPlan plan = WithSpares(1);
  EXPECT_EQ(plan.Ended(1, 7), LaunchPlan::Next::kSpare);
  EXPECT_EQ(plan.Ended(2, 0), LaunchPlan::Next::kNothing);
  EXPECT_EQ(plan.Ended(0, 0), LaunchPlan::Next::kNothing);
  EXPECT_EQ(plan.Ended(3, 0), LaunchPlan::Next::kNothing);
  ASSERT_TRUE(plan.finished());
  EXPECT_FALSE(plan.lost().has_value());
}

TEST(LaunchPlan, ASpareOfAnotherLaunchCanHaveAPart) {
  LaunchPlan plan = WithSpares(1, /*alone=*/false);
  EXPECT_EQ(plan.Ended(1, 7), LaunchPlan::Next::kSpare);
  EXPECT_EQ(plan.Ended(2, 0), LaunchPlan::Next::kNothing);
  EXPECT_EQ(plan.Ended(0, 0), LaunchPlan::Next::kNothing);
  EXPECT_EQ(plan.Ended(3, 0, false, Parts{}), LaunchPlan::Next::kNothing);
  ASSERT_TRUE(plan.finished());
  EXPECT_FALSE(plan.lost().has_value());
}

TEST(LaunchPlan, AWorkerIsNotReplaced) {
  LaunchPlan plan(3, /*restarts=*/0, {.servers = 1, .spares = 1, .spares_of_job = 1});
  for (int i = 0; i < 3; ++i) plan.Started();
  EXPECT_EQ(plan.Ended(1, 137), LaunchPlan::Next::kStop);
}

TEST(LaunchPlan, SparesOfAJobOfOtherLaunchesEndByThemselves) {
  LaunchPlan plan(2, 0, {.servers = 0, .spares = 1, .spares_of_job = 2, .alone = false});
  for (int i = 0; i < 2; ++i) plan.Started();
  EXPECT_EQ(plan.Ended(0, 0), LaunchPlan::Next::kNothing);
  EXPECT_FALSE(plan.TakeOnlySpares());
  EXPECT_EQ(plan.Ended(1, 1), LaunchPlan::Next::kSpare);
  EXPECT_TRUE(plan.finished());
  EXPECT_EQ(plan.exit_code(), 0);
}

}  // namespace
}  // namespace phalanx::runtime
