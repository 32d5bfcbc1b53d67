// One node as it runs: store, data plane, and a session with each shard, wired together. Decides nothing; the same class runs
// in the daemon (real seams), in LocalCluster (real seams, one process) and in simulation (simulated seams).
//
// Thread rule: made, used and destroyed on its control loop.
#ifndef PHALANX_RUNTIME_NODE_H_
#define PHALANX_RUNTIME_NODE_H_

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "src/common/executor.h"
#include "src/common/random.h"
#include "src/directory/directory_client.h"
#include "src/net/data_plane.h"
#include "src/object_store/store.h"

namespace phalanx::runtime {

struct NodeOptions {
  // Names the node for good: a later life with the same name replaces an earlier one at once.
  std::string name;
  net::Address listen = "127.0.0.1:0";
  // What peers dial; empty: the listener's address.
  std::string advertise;
  std::map<std::string, std::string> labels;
  uint64_t capacity_bytes = 0;
  std::string cluster_id = "default";
  std::string secret;
  net::DataPlaneOptions data_plane;  // self and handshake are filled in by Node
};

// What Node is built upon; all of it outlives the node.
struct NodeSeams {
  Executor& control;
  std::vector<Executor*> io;
  net::Network& network;
  object_store::SharedMemory& memory;
  // One per shard, in order; taken over by the node.
  std::vector<std::unique_ptr<directory::ShardConnector>> shards;
  Random random;
};

class Node {
 public:
  // Listens and begins to connect to the shards (waiting for them as long as it takes). Errors as Network::Listen, InvalidArgument.
  static absl::StatusOr<std::unique_ptr<Node>> Start(NodeOptions options, NodeSeams seams);
  ~Node();

  object_store::Store& store();
  const NodeKey& key() const;
  const std::string& name() const;
  const net::Address& address() const;
  // One line per shard: connected, or the last error.
  std::vector<absl::Status> ShardStates() const;
  net::DataPlaneStats data_plane_stats() const;

  // Moves sole copies elsewhere until `deadline`, then `done` (see Store::Drain).
  void Drain(Instant deadline, absl::AnyInvocable<void(absl::Status)> done);

 private:
  struct Impl;
  explicit Node(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace phalanx::runtime

#endif  // PHALANX_RUNTIME_NODE_H_
