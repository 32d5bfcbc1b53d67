// A node as a daemon: its loops, memory and data plane, the socket for its clients, its metrics.
//
//   main ── control loop ── Node ── Store, sessions
//             │              └──── LocalService ── clients
//             └─ I/O loops ─────── DataPlane ── peers
//
// Made and destroyed by main while the control loop does not run; in between on that loop. Owned by
// main (or a LocalCluster).
#ifndef PHALANX_RUNTIME_NODE_DAEMON_H_
#define PHALANX_RUNTIME_NODE_DAEMON_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "src/directory/local/local_message_stream.h"
#include "src/net/event_loop.h"
#include "src/runtime/node.h"

namespace phalanx::runtime {

struct NodeConfig {
  NodeOptions node;
  // One per shard, in order.
  std::vector<net::Address> directories = {"127.0.0.1:7400"};
  // The one shard, if it is in this process and on the same loop. It outlives the node.
  const directory::LocalDoor* local_directory = nullptr;
  // Sessions over gRPC's streams instead of plain TCP: slower, and good for proxies that let only
  // HTTP/2 through.
  bool directory_over_grpc = false;
  // A path. Its folder is made with mode 0700, or is so already and this user's.
  std::string socket;
  // 0: one per CPU, at most four.
  int io_threads = 0;
  // How long Leave tries to have sole copies fetched elsewhere.
  absl::Duration drain_timeout = absl::Seconds(30);
  // Empty: no metrics.
  net::Address metrics_listen;
  // Metrics ask for no secret: only with this are they served beyond loopback.
  bool metrics_open = false;
};

// "worker-7-7411" on a port of one's own choice, "worker-7-3f2a9c01" on port 0.
std::string DefaultNodeName(const net::Address& listen);

class NodeDaemon {
 public:
  // Serves clients and peers from the first turn of the loop on, and connects to the directory,
  // which need not be there yet. InvalidArgument, FailedPrecondition (beyond loopback without a
  // secret), AlreadyExists (port or socket in use); the text names what.
  static absl::StatusOr<std::unique_ptr<NodeDaemon>> Start(NodeConfig config,
                                                           net::EventLoop& control);
  // What clients and peers see is a node that died.
  ~NodeDaemon();

  Node& node();
  // "unix:/path".
  std::string client_address() const;
  net::Address metrics_address() const;

  // Has sole copies fetched elsewhere, serving everybody meanwhile; `done` with OK when the node
  // holds nothing that would be missed, or with DeadlineExceeded. REQUIRES: called once at most.
  void Leave(absl::AnyInvocable<void(absl::Status)> done);

 private:
  struct Impl;
  explicit NodeDaemon(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace phalanx::runtime

#endif  // PHALANX_RUNTIME_NODE_DAEMON_H_
