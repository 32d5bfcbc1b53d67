// The environment of a task's process: that of the launch, but for the variables that say which
// task it is. Those of an outer launch, or of another launcher of Rabit's programs, do not reach
// it. If the environment names a parameter server (DMLC_PS_ROOT_*), all DMLC variables stay as they
// are.
//
// A core: strings in, strings out.
#ifndef PHALANX_CLI_LAUNCH_TASK_ENVIRONMENT_H_
#define PHALANX_CLI_LAUNCH_TASK_ENVIRONMENT_H_

#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace phalanx::runtime {

// The role whose tasks are workers for programs of Rabit, too.
inline constexpr char kWorkerRole[] = "worker";

struct TaskVariables {
  std::string job;
  std::string role;
  // Of all tasks of the role in the job.
  int number = 0;
  int world = 1;
  int life = 0;
  std::string address;
  // The socket of the launch for what the task prints.
  std::string print;
  // Where the library kills this life of the task, and the file into which it writes before that;
  // or nothing.
  std::string fail;
  std::string fail_mark;
};

// The name of a task: worker3.
std::string TaskName(absl::string_view role, int number);

// Returns "NAME=VALUE" for each variable. `inherited`: as environ(7), ends with a null pointer.
std::vector<std::string> TaskEnvironment(const TaskVariables& task, const char* const* inherited);

}  // namespace phalanx::runtime

#endif  // PHALANX_CLI_LAUNCH_TASK_ENVIRONMENT_H_
