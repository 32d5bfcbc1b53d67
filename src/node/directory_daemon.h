// One shard of the directory as a daemon: the shard, its port and its metrics.
//
// Owned by main. main creates and destroys it while the control loop does not run, or on the loop.
#ifndef PHALANX_NODE_DIRECTORY_DAEMON_H_
#define PHALANX_NODE_DIRECTORY_DAEMON_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "src/common/time/executor.h"
#include "src/directory/core/directory_core.h"
#include "src/directory/local/local_message_stream.h"
#include "src/directory/session/session_handshake.h"
#include "src/net/tcp/tcp_network.h"

namespace phalanx::runtime {

struct DirectoryConfig {
  net::Address listen = "127.0.0.1:7400";
  int shard_index = 0;
  int num_shards = 1;
  std::string cluster_id = "default";
  std::string secret;
  // Empty: no metrics.
  net::Address metrics_listen;
  // Metrics need no secret. Only if this is true are they served beyond loopback.
  bool metrics_open = false;
  directory::DirectoryOptions core;
  // At most the lease.
  absl::Duration reconnect_grace = directory::SessionConfig{}.reconnect_grace;
};

class DirectoryDaemon {
 public:
  // Serves nodes and tools from the first turn of the loop on. Errors: InvalidArgument,
  // FailedPrecondition (an address beyond loopback without a secret), AlreadyExists (port in use).
  // The text names the address.
  static absl::StatusOr<std::unique_ptr<DirectoryDaemon>> Start(const DirectoryConfig& config,
                                                                Executor& control,
                                                                net::TcpNetwork& network);
  // The nodes' streams break. The nodes reconnect when a restarted shard listens on the address.
  ~DirectoryDaemon();

  // The address with the port that the system chose.
  const net::Address& address() const;
  // Empty if there are no metrics.
  net::Address metrics_address() const;

  // For a node on the same loop, whose session then needs no socket.
  const directory::LocalDoor& local_door() const;

 private:
  struct Impl;
  explicit DirectoryDaemon(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace phalanx::runtime

#endif  // PHALANX_NODE_DIRECTORY_DAEMON_H_
