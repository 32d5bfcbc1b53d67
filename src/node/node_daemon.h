// A node as a daemon: its loops, memory and data plane, the socket for its clients, its metrics.
//
// |  main ── control loop ── Node ── Store, sessions
// |            │              └──── LocalService ── clients
// |            └─ I/O loops ─────── DataPlane ── peers
//
// Owned by main (or a LocalCluster), which creates and destroys it while the control loop does not
// run. Between these it is used only on that loop.
#ifndef PHALANX_NODE_NODE_DAEMON_H_
#define PHALANX_NODE_NODE_DAEMON_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "src/directory/local/local_message_stream.h"
#include "src/net/loop/event_loop.h"
#include "src/node/node.h"

namespace phalanx::runtime {

struct NodeConfig {
  NodeOptions node;
  // One per shard, in order.
  std::vector<net::Address> directories = {"127.0.0.1:7400"};
  // The only shard, if it is in this process and on the same loop. It outlives the node.
  const directory::LocalDoor* local_directory = nullptr;
  // Use gRPC streams for sessions instead of plain TCP: slower, but they pass proxies that allow
  // only HTTP/2.
  bool directory_over_grpc = false;
  // A path. Its folder is created with mode 0700, or must have that mode and belong to this user.
  std::string socket;
  // 0: one per CPU, at most four.
  int io_threads = 0;
  // How long Leave waits until other nodes have fetched sole copies.
  absl::Duration drain_timeout = absl::Seconds(30);
  // Empty: no metrics.
  net::Address metrics_listen;
  // Metrics need no secret. Only if this is true are they served beyond loopback.
  bool metrics_open = false;
};

// Returns "worker-7-7411" for a fixed port, "worker-7-3f2a9c01" for port 0.
std::string DefaultNodeName(const net::Address& listen);

class NodeDaemon {
 public:
  // Serves clients and peers from the first turn of the loop on, and connects to the directory,
  // which can start later. Errors: InvalidArgument, FailedPrecondition (an address beyond loopback
  // without a secret), AlreadyExists (port or socket in use). The text names the port, socket or
  // address.
  static absl::StatusOr<std::unique_ptr<NodeDaemon>> Start(NodeConfig config,
                                                           net::EventLoop& control);
  // Clients and peers see the same as when the node dies.
  ~NodeDaemon();

  Node& node();
  // "unix:/path".
  std::string client_address() const;
  net::Address metrics_address() const;

  // Asks other nodes to fetch sole copies, and keeps serving requests in the meantime. Calls `done`
  // with OK when no copy on this node is the only one, with DeadlineExceeded, or with Unavailable
  // if the node has had no connection to any shard for half of drain_timeout. REQUIRES: called at
  // most once.
  void Leave(absl::AnyInvocable<void(absl::Status)> done);

 private:
  struct Impl;
  explicit NodeDaemon(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace phalanx::runtime

#endif  // PHALANX_NODE_NODE_DAEMON_H_
