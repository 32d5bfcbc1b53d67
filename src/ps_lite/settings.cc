#include "src/ps_lite/settings.h"

#include <charconv>
#include <cstring>
#include <limits>
#include <optional>

namespace phalanx::ps_lite {
namespace {

constexpr int kMostPort = 65535;
constexpr int kMostTimeoutSeconds = 1'000'000;

constexpr const char* kUnused[] = {"DMLC_NODE_HOST",
                                   "DMLC_INTERFACE",
                                   "PORT",
                                   "DMLC_LOCAL",
                                   "DMLC_PS_VAN_TYPE",
                                   "DMLC_ENABLE_RDMA",
                                   "DMLC_ENABLE_UCX",
                                   "PS_DROP_MSG",
                                   "PS_RESEND",
                                   "PS_RESEND_TIMEOUT",
                                   "PS_HEARTBEAT_INTERVAL",
                                   "PS_HEARTBEAT_TIMEOUT",
                                   "BYTEPS_ORDERED_HOSTS",
                                   "BYTEPS_ENABLE_MIXED_MODE"};

// An empty variable counts as one that is not set.
const char* Find(const Variables& variables, const char* name) {
  const char* const value = variables(name);
  return value == nullptr || *value == '\0' ? nullptr : value;
}

// The variable's whole value is a number from `least` to `most`.
std::string ReadNumber(const Variables& variables, const char* name, int least, int most,
                       bool required, int* to) {
  const char* const value = Find(variables, name);
  if (value == nullptr) return required ? std::string(name) + " is not set" : "";
  const char* const end = value + std::strlen(value);
  int number = 0;
  const auto [read, error] = std::from_chars(value, end, number);
  if (error != std::errc() || read != end || number < least || number > most) {
    return std::string(name) + "=" + value + ": the value is a number from " +
           std::to_string(least) + " to " + std::to_string(most);
  }
  *to = number;
  return "";
}

std::string ReadRole(const Variables& variables, Role* to) {
  const char* const value = Find(variables, "DMLC_ROLE");
  if (value == nullptr) return "DMLC_ROLE is not set: it is scheduler, server or worker";
  for (const Role role : kRoles) {
    if (std::strcmp(value, NameOf(role)) != 0) continue;
    *to = role;
    return "";
  }
  return std::string("DMLC_ROLE=") + value + ": the value is scheduler, server or worker";
}

// The role and the rank fit the numbers of processes.
std::string CheckPlace(const Settings& settings) {
  const std::string role = NameOf(settings.role);
  const int count = settings.count(settings.role);
  if (count == 0) return "DMLC_ROLE=" + role + ", but the job has none: DMLC_NUM_SERVER=0";
  if (settings.rank < count) return "";
  return "DMLC_RANK=" + std::to_string(settings.rank) + ": the job has " + std::to_string(count) +
         " processes of role " + role;
}

}  // namespace

std::string ReadSettings(const Variables& variables, Settings* to) {
  std::string wrong = ReadRole(variables, &to->role);
  const auto number = [&](const char* name, int least, int most, bool required, int* into) {
    if (wrong.empty()) wrong = ReadNumber(variables, name, least, most, required, into);
  };
  const char* const host = Find(variables, "DMLC_PS_ROOT_URI");
  const char* const job = Find(variables, "PHALANX_JOB");
  to->launched = host == nullptr && job != nullptr && to->role != Role::kScheduler;
  number("DMLC_NUM_WORKER", 1, kMostProcesses, true, &to->workers);
  number("DMLC_NUM_SERVER", 0, kMostProcesses, true, &to->servers);
  int life = 0;
  if (to->launched) {
    to->job = job;
    number("PHALANX_LIFE", 0, std::numeric_limits<int>::max(), false, &life);
    // The number of the task.
    number("DMLC_TASK_ID", 0, kMostProcesses - 1, true, &to->rank);
  } else {
    number("DMLC_PS_ROOT_PORT", 1, kMostPort, true, &to->root_port);
    number("DMLC_RANK", 0, kMostProcesses - 1, false, &to->rank);
  }
  number("PS_VERBOSE", 0, 2, false, &to->verbose);
  number("PHALANX_PS_TIMEOUT", 1, kMostTimeoutSeconds, false, &to->timeout_seconds);
  number("PHALANX_PS_RESTART_TIMEOUT", 0, kMostTimeoutSeconds, false, &to->restart_seconds);
  int tables = 1;
  number("PHALANX_PS_TABLES", 0, 1, false, &tables);
  if (!wrong.empty()) return wrong;
  const int all = to->count(Role::kScheduler) + to->servers + to->workers;
  to->tables = tables != 0 && to->servers <= kMostServersOfTables && all <= kMostProcessesOfTables;
  to->restarted = life > 0;
  if (host == nullptr && !to->launched) {
    return "DMLC_PS_ROOT_URI is not set: it is the host of the scheduler";
  }
  if (life > 0 && to->role == Role::kWorker) {
    return "PHALANX_LIFE=" + std::to_string(life) +
           ": this worker was started again, but what it was before is lost: start the launch "
           "again";
  }
  if (host != nullptr) to->root_host = host;
  for (const char* const name : kUnused) {
    if (Find(variables, name) != nullptr) to->unused.emplace_back(name);
  }
  return CheckPlace(*to);
}

}  // namespace phalanx::ps_lite
