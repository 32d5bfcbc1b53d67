// One node: the store, the data plane, and a session with each shard, wired together. It makes no
// decisions. The same class runs in the daemon (real seams), in LocalCluster (real seams, one
// process) and in simulation (simulated seams).
//
// |    clients ──► Store, Reducer, Members ──NodeMessage──► DirectoryClient × k ──► shards
// |                 │ ▲ ◄─ShardMessage──
// |       StartPull ▼ │ Serve
// |        DataPlane, NodeLinks ◄──bytes, messages──► other nodes
//
// Thread rule: created, used and destroyed on its control loop.
#ifndef PHALANX_NODE_NODE_H_
#define PHALANX_NODE_NODE_H_

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "src/collectives/reducer/reducer.h"
#include "src/common/random.h"
#include "src/common/time/executor.h"
#include "src/directory/session/directory_client.h"
#include "src/jobs/group/service/group_service.h"
#include "src/jobs/group/service/store_group_memory.h"
#include "src/jobs/members/members.h"
#include "src/jobs/messages/messages.h"
#include "src/net/link/node_links.h"
#include "src/net/plane/data_plane.h"
#include "src/object_store/store/store.h"

namespace phalanx::runtime {

struct NodeOptions {
  // The node's permanent name: a later incarnation with the same name replaces the earlier one at
  // once.
  std::string name;
  // The incarnation of this life; greater than that of every earlier life of this name. 0: the
  // nanoseconds of the system clock, because without a file nothing else outlives the process.
  // Besides log timestamps, this is the only use of the wall clock.
  uint64_t incarnation = 0;
  net::Address listen = "127.0.0.1:0";
  // The address that peers dial; empty: the listener's address.
  std::string advertise;
  std::map<std::string, std::string> labels;
  uint64_t capacity_bytes = 0;
  // Shown to operators who look for the process; 0 in simulation.
  uint64_t process_id = 0;
  std::string cluster_id = "default";
  std::string secret;
  // As in StoreOptions.
  size_t registered_per_turn = object_store::StoreOptions().registered_per_turn;
  absl::Duration transit_patience = object_store::StoreOptions().transit_patience;
  net::DataPlaneOptions data_plane;  // Node sets self and handshake
};

// The seams on which Node is built; all of them outlive the node.
struct NodeSeams {
  Executor& control;
  std::vector<Executor*> io;
  net::Network& network;
  object_store::SharedMemory& memory;
  // One per shard, in order; the node takes ownership.
  std::vector<std::unique_ptr<directory::ShardConnector>> shards;
  Random random;
  // The source of nonces for sessions and connections; empty: the system's generator.
  std::function<void(void* out, size_t size)> nonce_bytes;
  // Called when a shard's connection is established (OK) or breaks (the error); can be empty.
  absl::AnyInvocable<void(int shard, const absl::Status& state)> on_shard_state;
};

class Node {
 public:
  // Listens, and starts to connect to the shards; it retries without a limit. Errors as
  // Network::Listen, and InvalidArgument.
  static absl::StatusOr<std::unique_ptr<Node>> Start(NodeOptions options, NodeSeams seams);
  // Ends clients' requests, pulls and pushes without calling them back.
  ~Node();

  object_store::Store& store();
  collectives::Reducer& reducer();
  net::NodeLinks& links();
  jobs::Members& members();
  jobs::Messages& messages();
  jobs::GroupService& groups();
  jobs::StoreGroupMemory& group_memory();
  const NodeKey& key() const;
  const std::string& name() const;
  // The address under which peers reach this node.
  const net::Address& address() const;
  // One per shard: OK while connected, else the last error.
  std::vector<absl::Status> ShardStates() const;
  net::DataPlaneStats data_plane_stats() const;

  // Moves sole copies to other nodes until `deadline`, then calls `done` (see Store::Drain).
  void Drain(Instant deadline, absl::AnyInvocable<void(absl::Status)> done);

 private:
  struct Impl;
  explicit Node(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// The number for a node's name in every NodeKey; never 0.
uint64_t NodeNumber(absl::string_view name);

}  // namespace phalanx::runtime

#endif  // PHALANX_NODE_NODE_H_
