// The part of a job that one launch starts: of one role, or of two, tasks `first` to
// `first + tasks - 1` of `world`.
//
// A core: the environment is passed in as a function.
#ifndef PHALANX_CLI_LAUNCH_JOB_PLACE_H_
#define PHALANX_CLI_LAUNCH_JOB_PLACE_H_

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace phalanx::runtime {

// The largest number of tasks of a job.
inline constexpr int kMaxWorld = 1 << 20;

// The role whose tasks are workers for programs of Rabit, too.
inline constexpr char kWorkerRole[] = "worker";
// With the workers, the roles of a parameter server.
inline constexpr char kServerRole[] = "server";
// Tasks that take the part of a server that has died.
inline constexpr char kSpareRole[] = "spare";

// The name of a task: worker3.
std::string TaskName(absl::string_view role, int number);

// The tasks of one role.
struct RolePlace {
  std::string role = kWorkerRole;
  int tasks = 1;
  int world = 1;
  int first = 0;
};

// What the user has given of a RolePlace, and the names of the flags for that, for errors.
struct GivenPlace {
  std::string role = kWorkerRole;
  int tasks = 1;
  std::optional<int> world;
  std::optional<int> first;
  absl::string_view tasks_flag = "--tasks";
  absl::string_view world_flag = "--world";
  absl::string_view first_flag = "--first";
};

// Returns the value of an environment variable, or null.
using Variables = absl::FunctionRef<const char*(const char* name)>;

// Returns the place of a launch of the given tasks. What is missing comes from
//   - Slurm, in a step that srun started: SLURM_STEP_NUM_TASKS launches, of which this one has
//     the number SLURM_PROCID. A batch script has SLURM_PROCID too, but is no step.
//   - a Kubernetes job with completion mode Indexed: this is launch number JOB_COMPLETION_INDEX.
//     Their number is in no variable, so `world` is required;
//   - else from `tasks`, as if this were the only launch.
// Every launch starts the same number of tasks then. Returns InvalidArgument if a variable is not a
// number, the tasks are not all within the world, the world is empty, or a larger `world` is given
// and nothing says which of its tasks are here.
absl::StatusOr<RolePlace> FindRolePlace(const GivenPlace& given, Variables variables);

// The tasks of a launch, numbered from 0 on: those of its first role, then those of the next.
// Constant.
class LaunchTasks {
 public:
  explicit LaunchTasks(std::vector<RolePlace> roles);

  size_t size() const { return tasks_.size(); }
  const std::vector<RolePlace>& roles() const { return roles_; }
  // Null if the launch has no such role.
  const RolePlace* Role(absl::string_view name) const;
  // Other launches have tasks of the job, too.
  bool job_is_larger() const;

  // The role of a task, and its number in the job. REQUIRES: task < size().
  const RolePlace& RoleOf(size_t task) const { return roles_[tasks_[task].role]; }
  int NumberOf(size_t task) const { return tasks_[task].number; }
  std::string NameOf(size_t task) const { return TaskName(RoleOf(task).role, NumberOf(task)); }
  // Nothing if the launch does not have this task.
  std::optional<size_t> Find(absl::string_view role, int number) const;

 private:
  struct Task {
    size_t role;
    int number;
  };

  std::vector<RolePlace> roles_;
  std::vector<Task> tasks_;
};

}  // namespace phalanx::runtime

#endif  // PHALANX_CLI_LAUNCH_JOB_PLACE_H_
