#include "src/cli/launch/job_place.h"

#include <map>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "src/common/testing/status_matchers.h"

namespace phalanx::runtime {
namespace {

using ::testing::FieldsAre;
using ::testing::HasSubstr;
using testing::IsOkAndHolds;
using testing::StatusIs;

using Environment = std::map<std::string, std::string>;

absl::StatusOr<JobPlace> Find(int tasks, std::optional<int> world, std::optional<int> first,
                              const Environment& environment = {}) {
  return FindJobPlace(tasks, world, first, [&environment](const char* name) -> const char* {
    const auto found = environment.find(name);
    return found == environment.end() ? nullptr : found->second.c_str();
  });
}

constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;

TEST(JobPlaceTest, ALaunchAloneIsTheWorld) {
  EXPECT_THAT(Find(4, {}, {}), IsOkAndHolds(FieldsAre(4, 0)));
}

TEST(JobPlaceTest, FlagsWin) {
  const Environment slurm = {{"SLURM_STEP_NUM_TASKS", "9"}, {"SLURM_PROCID", "8"}};
  EXPECT_THAT(Find(4, 8, 4, slurm), IsOkAndHolds(FieldsAre(8, 4)));
  EXPECT_THAT(Find(4, 100, {}, slurm), IsOkAndHolds(FieldsAre(100, 32)));
  EXPECT_THAT(Find(4, {}, 1, slurm), IsOkAndHolds(FieldsAre(36, 1)));
}

TEST(JobPlaceTest, ALargerWorldNeedsTheFirstTask) {
  const auto refused = StatusIs(kInvalid, HasSubstr("--first is required with --world=8"));
  EXPECT_THAT(Find(4, 8, {}), refused);
  EXPECT_THAT(Find(4, 8, {}, {{"SLURM_PROCID", "1"}}), refused);
  EXPECT_THAT(Find(4, 8, {}, {{"SLURM_STEP_NUM_TASKS", "2"}}), refused);
  EXPECT_THAT(Find(4, 8, 0), IsOkAndHolds(FieldsAre(8, 0)));
  EXPECT_THAT(Find(4, 4, {}), IsOkAndHolds(FieldsAre(4, 0)));
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
    EXPECT_THAT(Find(2, {}, {}, step), IsOkAndHolds(FieldsAre(6, 2 * index)));
  }
}

TEST(JobPlaceTest, ABatchScriptOfSlurmIsNoStep) {
  const Environment batch = {{"SLURM_JOB_ID", "7"},
                             {"SLURM_PROCID", "0"},
                             {"SLURM_NTASKS", "8"},
                             {"SLURM_NNODES", "2"},
                             {"SLURM_NTASKS_PER_NODE", "4"}};
  EXPECT_THAT(Find(4, {}, {}, batch), IsOkAndHolds(FieldsAre(4, 0)));
}

TEST(JobPlaceTest, AnIndexedJobOfKubernetesNeedsTheWorld) {
  const Environment pod = {{"JOB_COMPLETION_INDEX", "2"}};
  EXPECT_THAT(Find(4, 12, {}, pod), IsOkAndHolds(FieldsAre(12, 8)));
  EXPECT_THAT(Find(4, 16, 0, pod), IsOkAndHolds(FieldsAre(16, 0)));
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
  EXPECT_THAT(Find(1, {}, {}, {{"SLURM_STEP_NUM_TASKS", ""}}), IsOkAndHolds(FieldsAre(1, 0)));
}

TEST(JobPlaceTest, AProductThatOverflowsIsRefused) {
  const Environment step = {{"SLURM_STEP_NUM_TASKS", "1048576"}, {"SLURM_PROCID", "1048575"}};
  EXPECT_THAT(Find(4096, {}, {}, step), StatusIs(kInvalid, HasSubstr("larger than")));
}

}  // namespace
}  // namespace phalanx::runtime
