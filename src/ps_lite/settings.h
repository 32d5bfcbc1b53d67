// Settings: the DMLC_* and PS_* variables of a process. docs/ps-lite.md has the table.
#ifndef PHALANX_PS_LITE_SETTINGS_H_
#define PHALANX_PS_LITE_SETTINGS_H_

#include <functional>
#include <string>
#include <vector>

#include "src/ps_lite/peer.h"

namespace phalanx::ps_lite {

// How many seconds a process waits for the others in Start, unless PHALANX_PS_TIMEOUT is set.
inline constexpr int kDefaultTimeoutSeconds = 300;
// How many seconds the others wait for the next life of a server that has died, unless
// PHALANX_PS_RESTART_TIMEOUT is set.
inline constexpr int kDefaultRestartSeconds = 60;
// Of a role: as many as a role of a job can have.
inline constexpr int kMostProcesses = 65536;
// Of a table (phalanx/ps_table.h), where all processes can be workers.
inline constexpr int kMostServersOfTables = 4096;
inline constexpr int kMostProcessesOfTables = 65536;

struct Settings {
  Role role = Role::kScheduler;
  int workers = 0;
  int servers = 0;
  std::string root_host;
  int root_port = 0;
  int rank = -1;  // the one that it is to have; -1: any
  // `phalanx launch` has started the servers and workers, and there is no scheduler.
  bool launched = false;
  std::string job;         // of the launch
  bool restarted = false;  // by the launch: a next life
  int verbose = 0;
  int timeout_seconds = kDefaultTimeoutSeconds;
  int restart_seconds = kDefaultRestartSeconds;
  // Values of KVServerDefaultHandle are in tables. Jobs that have more processes than these can
  // have go without them, as all of their processes see.
  bool tables = true;
  // Variables that are set and have no effect here.
  std::vector<std::string> unused;

  // How many processes have the role.
  int count(Role of) const {
    return of == Role::kScheduler ? (launched ? 0 : 1) : of == Role::kServer ? servers : workers;
  }
  // The process that keeps the lists of the job: the scheduler, or a worker, since these have no
  // next lives.
  Peer keeper() const { return launched ? Peer{Role::kWorker, 0} : Peer{}; }
};

// Returns the value of a variable, nullptr if it is not set.
using Variables = std::function<const char*(const char* name)>;

// Returns what is wrong, with the variable's name and value, or empty.
std::string ReadSettings(const Variables& variables, Settings* to);

}  // namespace phalanx::ps_lite

#endif  // PHALANX_PS_LITE_SETTINGS_H_
