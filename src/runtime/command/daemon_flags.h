// The flags of the daemons, and the first steps of every daemon. Main's thread only.
#ifndef PHALANX_RUNTIME_COMMAND_DAEMON_FLAGS_H_
#define PHALANX_RUNTIME_COMMAND_DAEMON_FLAGS_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "src/runtime/command/flags.h"
#include "src/runtime/directory_daemon.h"
#include "src/runtime/node_daemon.h"

namespace phalanx::runtime {

struct LogFlags {
  std::string level = "info";
  std::string file;
};

// The flags that directory and node share.
struct DaemonFlags {
  std::string cluster_id = "default";
  std::string secret_file;
  LogFlags log;
  bool json = false;
};

void AddDaemonFlags(Flags& flags, DaemonFlags* target);
void AddShardFlags(Flags& flags, DirectoryConfig* target);
void AddNodeMemoryFlags(Flags& flags, NodeConfig* target);
void AddNodeTransferFlags(Flags& flags, NodeConfig* target);

// Prepares log, signals and descriptors; must run before the first thread starts. Errors as
// SetLogLevel and SetLogFile.
absl::Status PrepareDaemon(const DaemonFlags& flags);

}  // namespace phalanx::runtime

#endif  // PHALANX_RUNTIME_COMMAND_DAEMON_FLAGS_H_
