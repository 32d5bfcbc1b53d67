// The flags of the daemons, and the first steps of every daemon. Main's thread only.
#ifndef PHALANX_CLI_DAEMONS_DAEMON_FLAGS_H_
#define PHALANX_CLI_DAEMONS_DAEMON_FLAGS_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "src/cli/flags.h"
#include "src/node/directory_daemon.h"
#include "src/node/node_daemon.h"

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

// Returns InvalidArgument unless the value of the flag is UTF-8. The directory cannot parse a
// message with another text, so the node would never connect.
absl::Status CheckUtf8(absl::string_view flag, absl::string_view text);

}  // namespace phalanx::runtime

#endif  // PHALANX_CLI_DAEMONS_DAEMON_FLAGS_H_
