#include "src/cli/launch/job_place.h"

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "src/common/testing/status_matchers.h"

namespace phalanx::runtime {
namespace {

using ::testing::ElementsAre;
using ::testing::FieldsAre;
using ::testing::HasSubstr;
using testing::IsOkAndHolds;
using testing::StatusIs;

using Environment = std::map<std::string, std::string>;

absl::StatusOr<RolePlace> Find(const GivenPlace& given, const Environment& environment = {}) {
  return FindRolePlace(given, [&environment](const char* name) -> const char* {
    const auto found = environment.find(name);
    return found == environment.end() ? nullptr : found->second.c_str();
  });
}

absl::StatusOr<RolePlace> Find(int tasks, std::optional<int> world, std::optional<int> first,
                               const Environment& environment = {}) {
  GivenPlace given;
  given.tasks = tasks;
  given.world = world;
  given.first = first;
  return Find(given, environment);
}

GivenPlace Servers(int tasks, std::optional<int> world, std::optional<int> first) {
  return {kServerRole, tasks, world, first, "--servers", "--server-world", "--server-first"};
}

auto IsPlace(int tasks, int world, int first, const std::string& role = kWorkerRole) {
  return IsOkAndHolds(FieldsAre(role, tasks, world, first));
}

constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;

TEST(JobPlaceTest, ALaunchAloneIsTheWorld) { EXPECT_THAT(Find(4, {}, {}), IsPlace(4, 4, 0)); }

TEST(JobPlaceTest, FlagsWin) {
  const Environment slurm = {{"SLURM_STEP_NUM_TASKS", "9"}, {"SLURM_PROCID", "8"}};
  EXPECT_THAT(Find(4, 8, 4, slurm), IsPlace(4, 8, 4));
  EXPECT_THAT(Find(4, 100, {}, slurm), IsPlace(4, 100, 32));
  EXPECT_THAT(Find(4, {}, 1, slurm), IsPlace(4, 36, 1));
}

TEST(JobPlaceTest, ALargerWorldNeedsTheFirstTask) {
  const auto refused = StatusIs(kInvalid, HasSubstr("--first is required with --world=8"));
  EXPECT_THAT(Find(4, 8, {}), refused);
  EXPECT_THAT(Find(4, 8, {}, {{"SLURM_PROCID", "1"}}), refused);
  EXPECT_THAT(Find(4, 8, {}, {{"SLURM_STEP_NUM_TASKS", "2"}}), refused);
  EXPECT_THAT(Find(4, 8, 0), IsPlace(4, 8, 0));
  EXPECT_THAT(Find(4, 4, {}), IsPlace(4, 4, 0));
}

TEST(JobPlaceTest, TasksBeyondTheWorldAreRefused) {
  EXPECT_THAT(Find(4, 8, 5), StatusIs(kInvalid, HasSubstr("task 8 (--first=5 --tasks=4)")));
  EXPECT_THAT(Find(4, 3, {}), StatusIs(kInvalid, HasSubstr("beyond --world=3")));
  EXPECT_THAT(Find(1, {}, 1), StatusIs(kInvalid, HasSubstr("whose last task is 0")));
  EXPECT_THAT(Find(4, 8, kMaxWorld), StatusIs(kInvalid));
}

TEST(JobPlaceTest, AStepOfSlurmHasALaunchForEachOfItsTasks) {
  for (int index = 0; index < 3; ++index) {
    const Environment step = {{"SLURM_STEP_NUM_TASKS", "3"},
                              {"SLURM_PROCID", std::to_string(index)}};
    EXPECT_THAT(Find(2, {}, {}, step), IsPlace(2, 6, 2 * index));
  }
}

TEST(JobPlaceTest, ABatchScriptOfSlurmIsNoStep) {
  const Environment batch = {{"SLURM_JOB_ID", "7"},
                             {"SLURM_PROCID", "0"},
                             {"SLURM_NTASKS", "8"},
                             {"SLURM_NNODES", "2"},
                             {"SLURM_NTASKS_PER_NODE", "4"}};
  EXPECT_THAT(Find(4, {}, {}, batch), IsPlace(4, 4, 0));
}

TEST(JobPlaceTest, AnIndexedJobOfKubernetesNeedsTheWorld) {
  const Environment pod = {{"JOB_COMPLETION_INDEX", "2"}};
  EXPECT_THAT(Find(4, 12, {}, pod), IsPlace(4, 12, 8));
  EXPECT_THAT(Find(4, 16, 0, pod), IsPlace(4, 16, 0));
  EXPECT_THAT(Find(4, {}, {}, pod), StatusIs(kInvalid, HasSubstr("--world is required")));
  // The first pod cannot know either that it is not the only one.
  EXPECT_THAT(Find(4, {}, {}, {{"JOB_COMPLETION_INDEX", "0"}}), StatusIs(kInvalid));
}

TEST(JobPlaceTest, AVariableThatIsNoNumberIsNamed) {
  for (const char* text : {"x", "-1", "1.5", "1048577", "99999999999"}) {
    EXPECT_THAT(Find(1, {}, {}, {{"SLURM_STEP_NUM_TASKS", "2"}, {"SLURM_PROCID", text}}),
                StatusIs(kInvalid, HasSubstr("SLURM_PROCID is \"")))
        << text;
  }
  EXPECT_THAT(Find(1, {}, {}, {{"SLURM_STEP_NUM_TASKS", ""}}), IsPlace(1, 1, 0));
}

TEST(JobPlaceTest, AProductThatOverflowsIsRefused) {
  const Environment step = {{"SLURM_STEP_NUM_TASKS", "1048576"}, {"SLURM_PROCID", "1048575"}};
  EXPECT_THAT(Find(4096, {}, {}, step), StatusIs(kInvalid, HasSubstr("larger than")));
}

TEST(JobPlaceTest, AnyHostCanBeWithoutServers) {
  EXPECT_THAT(Find(Servers(0, 2, {})), IsPlace(0, 2, 0, kServerRole));
  EXPECT_THAT(Find(Servers(0, 2, {}), {{"JOB_COMPLETION_INDEX", "3"}}),
              IsPlace(0, 2, 0, kServerRole));
  for (const Environment& environment :
       {Environment(), Environment{{"SLURM_STEP_NUM_TASKS", "3"}, {"SLURM_PROCID", "1"}}}) {
    EXPECT_THAT(Find(Servers(0, {}, {}), environment),
                StatusIs(kInvalid, HasSubstr("--servers=0 needs --server-world")));
  }
}

TEST(JobPlaceTest, ErrorsNameTheFlagsOfTheRole) {
  EXPECT_THAT(
      Find(Servers(2, 4, {})),
      StatusIs(kInvalid,
               HasSubstr("--server-first is required with --server-world=4 and --servers=2")));
  EXPECT_THAT(Find(Servers(2, 4, 3)),
              StatusIs(kInvalid, HasSubstr("task 4 (--server-first=3 --servers=2) is beyond "
                                           "--server-world=4")));
  EXPECT_THAT(Find(Servers(2, {}, {}), {{"JOB_COMPLETION_INDEX", "0"}}),
              StatusIs(kInvalid, HasSubstr("--server-world is required")));
  EXPECT_THAT(Find(Servers(2, {}, {}), {{"SLURM_STEP_NUM_TASKS", "many"}}),
              StatusIs(kInvalid, HasSubstr("give --server-world and --server-first")));
}

TEST(LaunchTasksTest, TasksOfARoleComeOneAfterTheOther) {
  const LaunchTasks tasks({{kServerRole, 2, 5, 3}, {kWorkerRole, 3, 9, 0}});
  std::vector<std::string> names;
  for (size_t task = 0; task < tasks.size(); ++task) {
    names.push_back(tasks.NameOf(task));
    EXPECT_EQ(tasks.Find(tasks.RoleOf(task).role, tasks.NumberOf(task)), task);
  }
  EXPECT_THAT(names, ElementsAre("server3", "server4", "worker0", "worker1", "worker2"));
  EXPECT_EQ(tasks.RoleOf(1).world, 5);
  EXPECT_EQ(tasks.RoleOf(2).world, 9);
  EXPECT_EQ(tasks.Find(kServerRole, 0), std::nullopt);
  EXPECT_EQ(tasks.Find(kWorkerRole, 3), std::nullopt);
  EXPECT_EQ(tasks.Find("ps", 0), std::nullopt);
  EXPECT_EQ(tasks.Role("ps"), nullptr);
  EXPECT_EQ(tasks.Role(kWorkerRole), &tasks.roles()[1]);
}

TEST(LaunchTasksTest, AJobIsLargerIfAnyRoleIs) {
  EXPECT_FALSE(LaunchTasks({{kServerRole, 2, 2, 0}, {kWorkerRole, 3, 3, 0}}).job_is_larger());
  EXPECT_TRUE(LaunchTasks({{kServerRole, 2, 2, 0}, {kWorkerRole, 3, 4, 0}}).job_is_larger());
  EXPECT_TRUE(LaunchTasks({{kServerRole, 0, 2, 0}, {kWorkerRole, 3, 3, 0}}).job_is_larger());
}

}  // namespace
}  // namespace phalanx::runtime
