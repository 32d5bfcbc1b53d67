#include "src/cli/launch/job_place.h"

#include <cstdint>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "src/common/status_macros.h"

namespace phalanx::runtime {
namespace {

// Returns the number in a variable; nothing if it is unset or empty.
absl::StatusOr<std::optional<int>> NumberIn(const char* name, Variables variables) {
  const char* text = variables(name);
  if (text == nullptr || *text == '\0') return std::nullopt;
  int number = 0;
  if (absl::SimpleAtoi(text, &number) && number >= 0 && number <= kMaxWorld) return number;
  return absl::InvalidArgumentError(absl::StrCat(name, " is \"", text,
                                                 "\", not a whole number from 0 to ", kMaxWorld,
                                                 ": give --world and --first"));
}

// This launch is number `index` of `launches`.
struct Scheduled {
  std::optional<int> launches;
  std::optional<int> index;
};

absl::StatusOr<Scheduled> FindScheduled(Variables variables) {
  Scheduled scheduled;
  PHALANX_ASSIGN_OR_RETURN(scheduled.launches, NumberIn("SLURM_STEP_NUM_TASKS", variables));
  const char* index = scheduled.launches ? "SLURM_PROCID" : "JOB_COMPLETION_INDEX";
  PHALANX_ASSIGN_OR_RETURN(scheduled.index, NumberIn(index, variables));
  return scheduled;
}

}  // namespace

absl::StatusOr<JobPlace> FindJobPlace(int tasks, std::optional<int> world, std::optional<int> first,
                                      Variables variables) {
  Scheduled scheduled;
  if (!world || !first) {
    PHALANX_ASSIGN_OR_RETURN(scheduled, FindScheduled(variables));
  }
  if (!world && scheduled.index && !scheduled.launches) {
    return absl::InvalidArgumentError(
        "--world is required with JOB_COMPLETION_INDEX: give the number of tasks of all pods");
  }
  // Without this, every host would start the same tasks.
  if (world && *world > tasks && !first && !scheduled.index) {
    return absl::InvalidArgumentError(
        absl::StrCat("--first is required with --world=", *world, " and --tasks=", tasks,
                     ": give the number of the first task here, 0 on the first host"));
  }
  // 64 bits: a product of two numbers in the range does not fit into 32.
  const int64_t all = world ? *world : int64_t{tasks} * scheduled.launches.value_or(1);
  const int64_t begin = first ? *first : int64_t{tasks} * scheduled.index.value_or(0);
  if (all > kMaxWorld) {
    return absl::InvalidArgumentError(
        absl::StrCat("a job of ", all, " tasks is larger than ", kMaxWorld));
  }
  if (begin + tasks > all) {
    return absl::InvalidArgumentError(absl::StrCat("task ", begin + tasks - 1, " (--first=", begin,
                                                   " --tasks=", tasks, ") is beyond --world=", all,
                                                   ", whose last task is ", all - 1));
  }
  return JobPlace{static_cast<int>(all), static_cast<int>(begin)};
}

}  // namespace phalanx::runtime
