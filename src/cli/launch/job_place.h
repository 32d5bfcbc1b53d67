// The part of a job that one launch starts: tasks `first` to `first + tasks - 1` of `world`.
//
// A core: the environment is passed in as a function.
#ifndef PHALANX_CLI_LAUNCH_JOB_PLACE_H_
#define PHALANX_CLI_LAUNCH_JOB_PLACE_H_

#include <optional>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"

namespace phalanx::runtime {

// The largest number of tasks of a job.
inline constexpr int kMaxWorld = 1 << 20;

struct JobPlace {
  int world = 1;
  int first = 0;
};

// Returns the value of an environment variable, or null.
using Variables = absl::FunctionRef<const char*(const char* name)>;

// Returns the place of a launch of `tasks` tasks. `world` and `first` are those that the user has
// given. What is missing comes from
//   - Slurm, in a step that srun started: SLURM_STEP_NUM_TASKS launches, of which this one has
//     the number SLURM_PROCID. A batch script has SLURM_PROCID too, but is no step.
//   - a Kubernetes job with completion mode Indexed: this is launch number JOB_COMPLETION_INDEX.
//     Their number is in no variable, so `world` is required;
//   - else from `tasks`, as if this were the only launch.
// Every launch starts the same number of tasks then. Returns InvalidArgument if a variable is not a
// number, the tasks are not all within the world, or a larger `world` is given and nothing says
// which of its tasks are here.
absl::StatusOr<JobPlace> FindJobPlace(int tasks, std::optional<int> world, std::optional<int> first,
                                      Variables variables);

}  // namespace phalanx::runtime

#endif  // PHALANX_CLI_LAUNCH_JOB_PLACE_H_
