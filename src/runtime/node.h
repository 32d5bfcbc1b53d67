// One node as it runs: store, data plane, and a session with each shard, wired together. Decides
// nothing; the same class runs in the daemon (real seams), in LocalCluster (real seams, one
// process) and in simulation (simulated seams).
//
//     clients ──► Store, Reducer ──NodeMessage──► DirectoryClient × k ──► shards
//                  │ ▲ ◄─ShardMessage──
//        StartPull ▼ │ Serve
//                DataPlane ◄──bytes──► other nodes
//
// Thread rule: made, used and destroyed on its control loop.
#ifndef PHALANX_RUNTIME_NODE_H_
#define PHALANX_RUNTIME_NODE_H_

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "src/collectives/reducer.h"
#include "src/common/executor.h"
#include "src/common/random.h"
#include "src/directory/directory_client.h"
#include "src/net/data_plane.h"
#include "src/object_store/store.h"

namespace phalanx::runtime {

struct NodeOptions {
  // Names the node for good: a later life with the same name replaces an earlier one at once.
  std::string name;
  // Of this life; greater than that of every earlier life of this name. 0: the system clock's
  // nanoseconds, which is the only thing that outlives a process without a file of its own and the
  // only wall clock that anything but a log reads.
  uint64_t incarnation = 0;
  net::Address listen = "127.0.0.1:0";
  // What peers dial; empty: the listener's address.
  std::string advertise;
  std::map<std::string, std::string> labels;
  uint64_t capacity_bytes = 0;
  // For people who look for the process; 0 in simulation.
  uint64_t process_id = 0;
  std::string cluster_id = "default";
  std::string secret;
  // As StoreOptions has it.
  size_t registered_per_turn = object_store::StoreOptions().registered_per_turn;
  absl::Duration transit_patience = object_store::StoreOptions().transit_patience;
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
  // Where nonces of sessions and connections come from; empty: the system's generator.
  std::function<void(void* out, size_t size)> nonce_bytes;
  // Told when a shard's connection comes up (OK) or breaks (why); may be empty.
  absl::AnyInvocable<void(int shard, const absl::Status& state)> on_shard_state;
};

class Node {
 public:
  // Listens and begins to connect to the shards (waiting for them as long as it takes). Errors as
  // Network::Listen, InvalidArgument.
  static absl::StatusOr<std::unique_ptr<Node>> Start(NodeOptions options, NodeSeams seams);
  // Clients' requests, pulls and pushes end without being called back.
  ~Node();

  object_store::Store& store();
  collectives::Reducer& reducer();
  const NodeKey& key() const;
  const std::string& name() const;
  // Where peers reach it.
  const net::Address& address() const;
  // One per shard: OK while connected, else the last error.
  std::vector<absl::Status> ShardStates() const;
  net::DataPlaneStats data_plane_stats() const;

  // Moves sole copies elsewhere until `deadline`, then `done` (see Store::Drain).
  void Drain(Instant deadline, absl::AnyInvocable<void(absl::Status)> done);

 private:
  struct Impl;
  explicit Node(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// The number that a node's name stands for in every NodeKey; never 0.
uint64_t NodeNumber(absl::string_view name);

}  // namespace phalanx::runtime

#endif  // PHALANX_RUNTIME_NODE_H_
