#include "src/cli/launch/task_environment.h"

#include <set>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "src/cli/launch/job_place.h"
#include "src/client/socket/launch_print.h"

namespace phalanx::runtime {
namespace {

// The launch runs no tracker of Rabit. With the address of another one, a program of Rabit would
// connect to that.
constexpr absl::string_view kTrackerVariables = "DMLC_TRACKER_";
// Where the scheduler of a parameter server is. The DMLC variables beside it are that program's,
// unless the launch starts its servers and workers.
constexpr absl::string_view kServerVariables = "DMLC_PS_ROOT_";
// Set for workers, and for the servers of a parameter server: programs of Rabit end at once in
// other roles than that of workers.
constexpr absl::string_view kRoleVariable = "DMLC_ROLE";
// The place of a server or a worker in its role. All tasks would have the same.
constexpr absl::string_view kRankVariable = "DMLC_RANK";

absl::string_view NameOf(absl::string_view entry) { return entry.substr(0, entry.find('=')); }

bool HasServers(const char* const* inherited) {
  for (; *inherited != nullptr; ++inherited) {
    if (absl::StartsWith(*inherited, kServerVariables)) return true;
  }
  return false;
}

// What launchers of programs of Rabit and of parameter servers set.
void AddDmlc(const TaskVariables& task, std::vector<std::string>& variables) {
  const ServersAndWorkers world =
      task.parameter_server.value_or(ServersAndWorkers{.servers = 0, .workers = task.world});
  variables.push_back(absl::StrCat("DMLC_TASK_ID=", task.number));
  variables.push_back(absl::StrCat("DMLC_NUM_WORKER=", world.workers));
  variables.push_back(absl::StrCat("DMLC_NUM_SERVER=", world.servers));
  variables.push_back(absl::StrCat("DMLC_NUM_ATTEMPT=", task.life));
  if (task.parameter_server || task.role == kWorkerRole) {
    variables.push_back(absl::StrCat(kRoleVariable, "=", task.role));
  }
}

}  // namespace

std::vector<std::string> TaskEnvironment(const TaskVariables& task, const char* const* inherited) {
  std::vector<std::string> variables = {
      absl::StrCat("PHALANX_JOB=", task.job),
      absl::StrCat("PHALANX_TASK=", TaskName(task.spare ? kSpareRole : task.role, task.number)),
      absl::StrCat("PHALANX_ROLE=", task.role),
      absl::StrCat("PHALANX_WORLD=", task.world),
      absl::StrCat("PHALANX_LIFE=", task.life),
      absl::StrCat("PHALANX_LAUNCH=", task.launch),
      absl::StrCat("PHALANX_ADDRESS=", task.address),
      absl::StrCat(internal::kPrintVariable, "=", task.print),
      absl::StrCat("PHALANX_FAIL=", task.fail),
      absl::StrCat("PHALANX_FAIL_MARK=", task.fail_mark),
  };
  // Empty: it is no spare.
  const SpareVariables spare = task.spare.value_or(SpareVariables{.world = 0, .after = ""});
  variables.push_back(absl::StrCat("PHALANX_SPARE_ABSENT_AFTER=", spare.absent_after));
  variables.push_back(absl::StrCat("PHALANX_SPARE_PARTS=", spare.parts));
  variables.push_back(
      absl::StrCat("PHALANX_SPARES=", spare.world > 0 ? absl::StrCat(spare.world) : ""));
  variables.push_back(absl::StrCat("PHALANX_SPARE_AFTER=", spare.after));
  if (!task.checkpoint_dir.empty()) {
    variables.push_back(absl::StrCat("PHALANX_CHECKPOINT_DIR=", task.checkpoint_dir));
  }
  const bool own_dmlc = task.parameter_server || !HasServers(inherited);
  if (own_dmlc) AddDmlc(task, variables);
  std::set<std::string> own;
  for (const std::string& variable : variables) own.emplace(NameOf(variable));
  if (own_dmlc) own.emplace(kRoleVariable);
  if (task.parameter_server) own.emplace(kRankVariable);
  for (const char* const* entry = inherited; *entry != nullptr; ++entry) {
    const absl::string_view name = NameOf(*entry);
    if (own.contains(std::string(name))) continue;
    if (own_dmlc && absl::StartsWith(name, kTrackerVariables)) continue;
    variables.emplace_back(*entry);
  }
  return variables;
}

}  // namespace phalanx::runtime
