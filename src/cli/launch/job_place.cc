#include "src/cli/launch/job_place.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "src/common/status_macros.h"

namespace phalanx::runtime {
namespace {

// Returns the number in a variable; nothing if it is unset or empty.
absl::StatusOr<std::optional<int>> NumberIn(const char* name, const GivenPlace& given,
                                            Variables variables) {
  const char* text = variables(name);
  if (text == nullptr || *text == '\0') return std::nullopt;
  int number = 0;
  if (absl::SimpleAtoi(text, &number) && number >= 0 && number <= kMaxWorld) return number;
  return absl::InvalidArgumentError(
      absl::StrCat(name, " is \"", text, "\", not a whole number from 0 to ", kMaxWorld, ": give ",
                   given.world_flag, " and ", given.first_flag));
}

// This launch is number `index` of `launches`.
struct Scheduled {
  std::optional<int> launches;
  std::optional<int> index;
};

absl::StatusOr<Scheduled> FindScheduled(const GivenPlace& given, Variables variables) {
  Scheduled scheduled;
  PHALANX_ASSIGN_OR_RETURN(scheduled.launches, NumberIn("SLURM_STEP_NUM_TASKS", given, variables));
  const char* index = scheduled.launches ? "SLURM_PROCID" : "JOB_COMPLETION_INDEX";
  PHALANX_ASSIGN_OR_RETURN(scheduled.index, NumberIn(index, given, variables));
  return scheduled;
}

}  // namespace

std::string TaskName(absl::string_view role, int number) { return absl::StrCat(role, number); }

absl::StatusOr<RolePlace> FindRolePlace(const GivenPlace& given, Variables variables) {
  const int tasks = given.tasks;
  Scheduled scheduled;
  if (!given.world || !given.first) {
    PHALANX_ASSIGN_OR_RETURN(scheduled, FindScheduled(given, variables));
  }
  if (!given.world && scheduled.index && !scheduled.launches) {
    return absl::InvalidArgumentError(
        absl::StrCat(given.world_flag,
                     " is required with JOB_COMPLETION_INDEX: give the number of "
                     "tasks of all pods"));
  }
  // Without this, every host would start the same tasks.
  if (tasks > 0 && given.world > tasks && !given.first && !scheduled.index) {
    return absl::InvalidArgumentError(
        absl::StrCat(given.first_flag, " is required with ", given.world_flag, "=", *given.world,
                     " and ", given.tasks_flag, "=", tasks,
                     ": give the number of the first task here, 0 on the first host"));
  }
  // 64 bits: a product of two numbers in the range does not fit into 32.
  const int64_t all = given.world ? *given.world : int64_t{tasks} * scheduled.launches.value_or(1);
  const int64_t begin = given.first ? *given.first : int64_t{tasks} * scheduled.index.value_or(0);
  if (all == 0) {
    return absl::InvalidArgumentError(
        absl::StrCat(given.tasks_flag, "=0 needs ", given.world_flag,
                     ": give the number of tasks that other launches start"));
  }
  if (all > kMaxWorld) {
    return absl::InvalidArgumentError(
        absl::StrCat("a job of ", all, " tasks is larger than ", kMaxWorld));
  }
  if (begin + tasks > all) {
    return absl::InvalidArgumentError(absl::StrCat(
        "task ", begin + tasks - 1, " (", given.first_flag, "=", begin, " ", given.tasks_flag, "=",
        tasks, ") is beyond ", given.world_flag, "=", all, ", whose last task is ", all - 1));
  }
  return RolePlace{given.role, tasks, static_cast<int>(all), static_cast<int>(begin)};
}

LaunchTasks::LaunchTasks(std::vector<RolePlace> roles) : roles_(std::move(roles)) {
  for (size_t role = 0; role < roles_.size(); ++role) {
    for (int i = 0; i < roles_[role].tasks; ++i) tasks_.push_back({role, roles_[role].first + i});
  }
}

const RolePlace* LaunchTasks::Role(absl::string_view name) const {
  for (const RolePlace& role : roles_) {
    if (role.role == name) return &role;
  }
  return nullptr;
}

bool LaunchTasks::job_is_larger() const {
  return std::any_of(roles_.begin(), roles_.end(),
                     [](const RolePlace& role) { return role.world > role.tasks; });
}

std::optional<size_t> LaunchTasks::Find(absl::string_view role, int number) const {
  for (size_t task = 0; task < tasks_.size(); ++task) {
    if (tasks_[task].number == number && RoleOf(task).role == role) return task;
  }
  return std::nullopt;
}

}  // namespace phalanx::runtime
