#include "src/cli/daemons/daemon_flags.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "src/common/io/log.h"
#include "src/common/io/utf8.h"
#include "src/common/status_macros.h"
#include "src/net/loop/file_descriptor_limit.h"
#include "src/node/host/machine.h"
#include "src/node/host/process_signals.h"

namespace phalanx::runtime {
namespace {

// With fewer descriptors a default run with many small objects runs out of them.
constexpr uint64_t kFewDescriptors = 1024;

}  // namespace

void AddDaemonFlags(Flags& flags, DaemonFlags* target) {
  flags.Group("Cluster");
  flags.Setting("--cluster-id", "Name of the cluster; daemons of other clusters are refused",
                Text(&target->cluster_id, "NAME"));
  flags.Setting(
      "--secret-file",
      "A file with the cluster's secret; without it $PHALANX_SECRET is the secret. Without "
      "any, daemons listen on loopback only",
      Text(&target->secret_file, "FILE"));
  flags.Group("Log");
  flags.Setting("--log-level", "The lowest level that is logged",
                Choice(&target->log.level, {"debug", "info", "warning", "error", "off"}));
  flags.Setting("--log-file",
                "Append the log to this file instead of standard error; SIGHUP reopens it",
                Text(&target->log.file, "FILE"));
  flags.Argument("--json", "Print the daemon's addresses as JSON", Switch(&target->json));
}

// Shared by `directory` and `up`, as below.
void AddShardFlags(Flags& flags, DirectoryConfig* target) {
  flags.Group("Directory");
  flags.Setting("--lease", "How long a silent node counts as alive", TimeSpan(&target->core.lease));
  flags.Setting("--reconnect-grace",
                "How long a disconnected node has to reconnect; at most the lease",
                TimeSpan(&target->reconnect_grace));
  flags.Setting("--inline-cache",
                "Bytes of objects up to 64 KiB that the shard keeps and returns itself",
                ByteSize(&target->core.inline_cache_bytes));
  flags.Setting("--tombstone-age", "How long the tombstone of a deleted object is kept at least",
                TimeSpan(&target->core.tombstone_age));
}

// Shared by `node` and `up`, so that a private cluster has the same limits.
void AddNodeMemoryFlags(Flags& flags, NodeConfig* target) {
  flags.Group("Memory");
  FlagValue capacity = ByteSize(&target->node.capacity_bytes);
  // Afterwards 0 stands for the default. SettleCapacity checks other values.
  capacity.parse = [target, parse = capacity.parse](const std::vector<std::string>& texts) {
    const absl::Status status = parse(texts);
    return status.ok() && target->node.capacity_bytes == 0 ? CheckCapacity(0) : status;
  };
  flags.Setting(
      "--capacity",
      "Bytes for objects on this node, at least 1MiB; by default 30% of the memory that is "
      "available when the node starts (the minimum of the kernel's estimate and the cgroup's "
      "limit)",
      std::move(capacity));
}

void AddNodeTransferFlags(Flags& flags, NodeConfig* target) {
  net::DataPlaneOptions& plane = target->node.data_plane;
  flags.Group("Transfers");
  flags.Setting("--io-threads", "Threads that move bytes; 0: one per CPU, at most 4",
                Integer(&target->io_threads, 0, 64));
  flags.Setting("--max-egress", "Limit of bytes per second sent to all peers; 0: no limit",
                ByteRate(&plane.max_egress));
  flags.Setting("--checksums",
                "Check a hash of each segment that peers send: detects faulty memory and networks",
                Switch(&plane.checksums));
  flags.Setting("--stall-timeout", "Replace a sender that is silent for this long",
                TimeSpan(&plane.stall_timeout));
  flags.Setting("--peer-connect-timeout", "How long to try to reach a peer",
                TimeSpan(&plane.connect_timeout));
  flags.Setting("--max-pushes", "Pulls served at a time; further pulls go to other senders",
                Integer(&plane.max_pushes, 1, 1 << 20));
  flags.Setting("--max-peer-connections", "Limit of connections with peers, in both directions",
                Integer(&plane.max_connections, 8, 1 << 20));
}

absl::Status PrepareDaemon(const DaemonFlags& flags) {
  // The log goes first, so that every later warning reaches the file.
  PHALANX_RETURN_IF_ERROR(SetLogLevel(flags.log.level));
  PHALANX_RETURN_IF_ERROR(SetLogFile(flags.log.file));
  // Before any thread starts, because threads inherit the signal mask.
  HoldSignals();
  IgnoreBrokenPipes();
  const absl::StatusOr<uint64_t> descriptors = net::RaiseFileDescriptorLimit();
  // A node with few descriptors works, but only for few clients, so this is a warning.
  if (!descriptors.ok() || *descriptors < kFewDescriptors) {
    PHALANX_LOG(WARNING) << "few file descriptors are allowed, so only few clients, peers and "
                            "large objects fit; raise the hard limit (ulimit -Hn)"
                         << LogField("limit", descriptors.value_or(0));
  }
  return absl::OkStatus();
}

absl::Status CheckUtf8(absl::string_view flag, absl::string_view text) {
  if (IsUtf8(text)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(flag, ": \"", absl::CHexEscape(text), "\" is not valid UTF-8"));
}

}  // namespace phalanx::runtime
