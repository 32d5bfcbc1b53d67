#include "src/cli/launch/task_environment.h"

#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace phalanx::runtime {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::IsSupersetOf;
using ::testing::Not;

constexpr const char* kNone[] = {nullptr};

TaskVariables Third() {
  TaskVariables task;
  task.job = "train";
  task.role = "worker";
  task.number = 3;
  task.world = 8;
  task.life = 2;
  task.address = "unix:/run/node.sock";
  task.print = "/run/print";
  task.fail = "57";
  task.fail_mark = "/proc/1/fd/9";
  task.launch = "1f";
  return task;
}

std::vector<std::string> Dmlc(const std::vector<std::string>& variables) {
  std::vector<std::string> found;
  for (const std::string& variable : variables) {
    if (absl::StartsWith(variable, "DMLC_")) found.push_back(variable);
  }
  return found;
}

TEST(TaskEnvironmentTest, SaysWhichTaskItIs) {
  EXPECT_THAT(TaskEnvironment(Third(), kNone),
              ElementsAre("PHALANX_JOB=train", "PHALANX_TASK=worker3", "PHALANX_ROLE=worker",
                          "PHALANX_WORLD=8", "PHALANX_LIFE=2", "PHALANX_LAUNCH=1f",
                          "PHALANX_ADDRESS=unix:/run/node.sock", "PHALANX_PRINT=/run/print",
                          "PHALANX_FAIL=57", "PHALANX_FAIL_MARK=/proc/1/fd/9",
                          "PHALANX_SPARE_ABSENT_AFTER=", "PHALANX_SPARE_PARTS=", "PHALANX_SPARES=",
                          "PHALANX_SPARE_AFTER=", "DMLC_TASK_ID=3", "DMLC_NUM_WORKER=8",
                          "DMLC_NUM_SERVER=0", "DMLC_NUM_ATTEMPT=2", "DMLC_ROLE=worker"));
}

TEST(TaskEnvironmentTest, VariablesOfAnOuterLaunchAreReplaced) {
  const char* const outer[] = {"PHALANX_LIFE=9",     "PATH=/bin",
                               "PHALANX_FAIL=1",     "DMLC_TASK_ID=77",
                               "DMLC_ROLE=server",   "DMLC_NUM_SERVER=4",
                               "PHALANX_PRINT=@x",   "DMLC_NUM_WORKER=1",
                               "DMLC_NUM_ATTEMPT=5", nullptr};
  const std::vector<std::string> variables = TaskEnvironment(Third(), outer);
  EXPECT_EQ(variables.size(), TaskEnvironment(Third(), kNone).size() + 1);
  EXPECT_EQ(variables.back(), "PATH=/bin");
  EXPECT_THAT(variables, Contains("DMLC_ROLE=worker"));
}

TEST(TaskEnvironmentTest, ASpareIsAServerWithoutAPart) {
  TaskVariables task = Third();
  task.role = "server";
  task.number = 1;
  task.spare =
      SpareVariables{.world = 4, .after = "5s", .absent_after = "9s", .parts = "/proc/1/fd/8"};
  task.checkpoint_dir = "/disk";
  const char* const outer[] = {"PHALANX_SPARES=9", "PHALANX_SPARE_PARTS=/x",
                               "PHALANX_CHECKPOINT_DIR=/other", nullptr};
  const std::vector<std::string> variables = TaskEnvironment(task, outer);
  EXPECT_THAT(variables,
              IsSupersetOf({"PHALANX_TASK=spare1", "PHALANX_ROLE=server", "PHALANX_SPARES=4",
                            "PHALANX_SPARE_AFTER=5s", "PHALANX_SPARE_ABSENT_AFTER=9s",
                            "PHALANX_SPARE_PARTS=/proc/1/fd/8", "PHALANX_CHECKPOINT_DIR=/disk"}));
  EXPECT_THAT(variables, Not(Contains("PHALANX_SPARES=9")));
  EXPECT_THAT(variables, Not(Contains("PHALANX_SPARE_PARTS=/x")));
  EXPECT_THAT(variables, Not(Contains("PHALANX_CHECKPOINT_DIR=/other")));
}

TEST(TaskEnvironmentTest, NoTrackerIsInherited) {
  const char* const outer[] = {"DMLC_TRACKER_URI=10.0.0.1", "DMLC_TRACKER_PORT=9091",
                               "DMLC_INTERFACE=eth0", nullptr};
  EXPECT_THAT(Dmlc(TaskEnvironment(Third(), outer)),
              ElementsAre("DMLC_TASK_ID=3", "DMLC_NUM_WORKER=8", "DMLC_NUM_SERVER=0",
                          "DMLC_NUM_ATTEMPT=2", "DMLC_ROLE=worker", "DMLC_INTERFACE=eth0"));
}

TEST(TaskEnvironmentTest, OnlyWorkersAreWorkersOfRabit) {
  TaskVariables task = Third();
  task.role = "ps";
  const char* const outer[] = {"DMLC_ROLE=worker", nullptr};
  const std::vector<std::string> variables = TaskEnvironment(task, outer);
  EXPECT_THAT(Dmlc(variables), ElementsAre("DMLC_TASK_ID=3", "DMLC_NUM_WORKER=8",
                                           "DMLC_NUM_SERVER=0", "DMLC_NUM_ATTEMPT=2"));
  EXPECT_THAT(variables, Contains("PHALANX_TASK=ps3"));
}

TEST(TaskEnvironmentTest, VariablesOfAParameterServerStay) {
  const char* const outer[] = {"DMLC_PS_ROOT_URI=10.0.0.1", "DMLC_NUM_SERVER=4", "DMLC_ROLE=server",
                               "DMLC_TRACKER_URI=10.0.0.1", "DMLC_NUM_WORKER=8", nullptr};
  EXPECT_THAT(Dmlc(TaskEnvironment(Third(), outer)),
              ElementsAre(outer[0], outer[1], outer[2], outer[3], outer[4]));
}

TEST(TaskEnvironmentTest, TasksOfAParameterServerKnowTheNumbersOfBothRoles) {
  TaskVariables task = Third();
  task.parameter_server = ServersAndWorkers{.servers = 2, .workers = 8};
  EXPECT_THAT(Dmlc(TaskEnvironment(task, kNone)),
              ElementsAre("DMLC_TASK_ID=3", "DMLC_NUM_WORKER=8", "DMLC_NUM_SERVER=2",
                          "DMLC_NUM_ATTEMPT=2", "DMLC_ROLE=worker"));
  task.role = "server";
  task.number = 1;
  task.world = 2;
  const std::vector<std::string> variables = TaskEnvironment(task, kNone);
  EXPECT_THAT(Dmlc(variables),
              ElementsAre("DMLC_TASK_ID=1", "DMLC_NUM_WORKER=8", "DMLC_NUM_SERVER=2",
                          "DMLC_NUM_ATTEMPT=2", "DMLC_ROLE=server"));
  EXPECT_THAT(variables, Contains("PHALANX_TASK=server1"));
  EXPECT_THAT(variables, Contains("PHALANX_ROLE=server"));
  EXPECT_THAT(variables, Contains("PHALANX_WORLD=2"));
}

TEST(TaskEnvironmentTest, AParameterServerOfTheLaunchHasItsOwnNumbers) {
  TaskVariables task = Third();
  task.parameter_server = ServersAndWorkers{.servers = 2, .workers = 8};
  const char* const outer[] = {"DMLC_PS_ROOT_URI=10.0.0.1",
                               "DMLC_NUM_SERVER=4",
                               "DMLC_ROLE=scheduler",
                               "DMLC_RANK=5",
                               "DMLC_TRACKER_URI=10.0.0.1",
                               "DMLC_NUM_WORKER=1",
                               nullptr};
  EXPECT_THAT(Dmlc(TaskEnvironment(task, outer)),
              ElementsAre("DMLC_TASK_ID=3", "DMLC_NUM_WORKER=8", "DMLC_NUM_SERVER=2",
                          "DMLC_NUM_ATTEMPT=2", "DMLC_ROLE=worker", outer[0]));
}

TEST(TaskEnvironmentTest, NamesThatOnlyBeginAlikeStay) {
  const char* const outer[] = {"PHALANX_JOBS=many",
                               "PHALANX_CAPACITY=1GiB",
                               "PHALANX_LIF=1",
                               "without a value",
                               "=odd",
                               nullptr};
  const std::vector<std::string> variables = TaskEnvironment(Third(), outer);
  for (int i = 0; outer[i] != nullptr; ++i) EXPECT_THAT(variables, Contains(outer[i]));
  EXPECT_THAT(variables, Not(Contains("PHALANX_JOB=many")));
}

}  // namespace
}  // namespace phalanx::runtime
