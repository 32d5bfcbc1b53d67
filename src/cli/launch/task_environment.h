// The environment of a task's process: that of the launch, but for the variables that say which
// task it is. Those of an outer launch, or of another launcher of Rabit's programs, do not reach
// it. If the environment names a parameter server (DMLC_PS_ROOT_*), and the launch does not start
// one, all DMLC variables stay as they are.
//
// A core: strings in, strings out.
#ifndef PHALANX_CLI_LAUNCH_TASK_ENVIRONMENT_H_
#define PHALANX_CLI_LAUNCH_TASK_ENVIRONMENT_H_

#include <optional>
#include <string>
#include <vector>

namespace phalanx::runtime {

// Of a spare.
struct SpareVariables {
  int world = 1;      // of all spares of the job
  std::string after;  // how long a server has to be dead
  // The same of one that has not joined; empty: as the library says.
  std::string absent_after = {};
  std::string parts = {};  // the file into which it writes which parts it has
};

// How many tasks a job with a parameter server has.
struct ServersAndWorkers {
  int servers = 1;
  int workers = 1;
};

struct TaskVariables {
  std::string job;
  std::string role;
  // Of all tasks of the role in the job.
  int number = 0;
  int world = 1;
  int life = 0;
  std::string launch = {};  // a name of this launch
  // Of a launch that starts a parameter server; the role is then kServerRole or kWorkerRole.
  std::optional<ServersAndWorkers> parameter_server = {};
  // Of a task that waits for a server's part: the role is then kServerRole, and the world its.
  std::optional<SpareVariables> spare = {};
  std::string address;
  // The socket of the launch for what the task prints.
  std::string print;
  // Where the library kills this life of the task, and the file into which it writes before that;
  // or nothing.
  std::string fail;
  std::string fail_mark;
  // Where it writes its checkpoints; empty: as the launch's own variable says.
  std::string checkpoint_dir = {};
};

// Returns "NAME=VALUE" for each variable. `inherited`: as environ(7), ends with a null pointer.
std::vector<std::string> TaskEnvironment(const TaskVariables& task, const char* const* inherited);

}  // namespace phalanx::runtime

#endif  // PHALANX_CLI_LAUNCH_TASK_ENVIRONMENT_H_
