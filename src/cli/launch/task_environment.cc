#include "src/cli/launch/task_environment.h"

#include <set>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "src/client/socket/launch_print.h"

namespace phalanx::runtime {
namespace {

// The launch runs no tracker of Rabit. With the address of another one, a program of Rabit would
// connect to that.
constexpr absl::string_view kTrackerVariables = "DMLC_TRACKER_";
// Where the scheduler of a parameter server is. The DMLC variables beside it are that program's.
constexpr absl::string_view kServerVariables = "DMLC_PS_ROOT_";
// Set for workers alone: programs of Rabit end at once in other roles.
constexpr absl::string_view kRoleVariable = "DMLC_ROLE";

absl::string_view NameOf(absl::string_view entry) { return entry.substr(0, entry.find('=')); }

bool HasServers(const char* const* inherited) {
  for (; *inherited != nullptr; ++inherited) {
    if (absl::StartsWith(*inherited, kServerVariables)) return true;
  }
  return false;
}

// What launchers of Rabit's programs set.
void AddRabit(const TaskVariables& task, std::vector<std::string>& variables) {
  variables.push_back(absl::StrCat("DMLC_TASK_ID=", task.number));
  variables.push_back(absl::StrCat("DMLC_NUM_WORKER=", task.world));
  variables.push_back("DMLC_NUM_SERVER=0");
  variables.push_back(absl::StrCat("DMLC_NUM_ATTEMPT=", task.life));
  if (task.role == kWorkerRole) variables.push_back(absl::StrCat(kRoleVariable, "=worker"));
}

}  // namespace

std::string TaskName(absl::string_view role, int number) { return absl::StrCat(role, number); }

std::vector<std::string> TaskEnvironment(const TaskVariables& task, const char* const* inherited) {
  std::vector<std::string> variables = {
      absl::StrCat("PHALANX_JOB=", task.job),
      absl::StrCat("PHALANX_TASK=", TaskName(task.role, task.number)),
      absl::StrCat("PHALANX_ROLE=", task.role),
      absl::StrCat("PHALANX_WORLD=", task.world),
      absl::StrCat("PHALANX_LIFE=", task.life),
      absl::StrCat("PHALANX_ADDRESS=", task.address),
      absl::StrCat(internal::kPrintVariable, "=", task.print),
      absl::StrCat("PHALANX_FAIL=", task.fail),
      absl::StrCat("PHALANX_FAIL_MARK=", task.fail_mark),
  };
  const bool of_rabit = !HasServers(inherited);
  if (of_rabit) AddRabit(task, variables);
  std::set<std::string> own;
  for (const std::string& variable : variables) own.emplace(NameOf(variable));
  if (of_rabit) own.emplace(kRoleVariable);
  for (const char* const* entry = inherited; *entry != nullptr; ++entry) {
    const absl::string_view name = NameOf(*entry);
    if (own.contains(std::string(name))) continue;
    if (of_rabit && absl::StartsWith(name, kTrackerVariables)) continue;
    variables.emplace_back(*entry);
  }
  return variables;
}

}  // namespace phalanx::runtime
