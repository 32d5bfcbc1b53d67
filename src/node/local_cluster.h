// A whole cluster in one process: k shards and n nodes over real sockets on loopback. Each member
// has its own loops, and each node has a socket for clients. For tests, benchmarks and experiments.
//
// |  auto cluster = LocalCluster::Start({.nodes = 4}).value();
// |  auto client = Client::Connect({.address = cluster->client_address(2)}).value();
//
// One thread at a time.
#ifndef PHALANX_NODE_LOCAL_CLUSTER_H_
#define PHALANX_NODE_LOCAL_CLUSTER_H_

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "src/node/directory_daemon.h"
#include "src/node/host/paths.h"
#include "src/node/node_daemon.h"

namespace phalanx::runtime {

struct LocalClusterOptions {
  int shards = 1;
  int nodes = 1;
  uint64_t capacity_bytes = uint64_t{256} << 20;
  std::string secret = {};
  directory::DirectoryOptions directory = {};
  net::DataPlaneOptions data_plane = {};
  int io_threads = 1;
  // Changes the configuration of a node before the node starts; can be empty.
  std::function<void(int node, NodeConfig& config)> configure_node = {};
};

class LocalCluster {
 public:
  // Starts all members. Nodes are named n0, n1, and so on. The nodes can still be connecting to the
  // directory when this returns; calls wait for the connection. Errors as those of the daemons.
  static absl::StatusOr<std::unique_ptr<LocalCluster>> Start(LocalClusterOptions options);
  ~LocalCluster();

  int nodes() const;
  int shards() const;
  static std::string NodeName(int node);
  // "unix:...", the same after every restart of the node.
  std::string client_address(int node) const;
  // The shards' addresses, separated by commas.
  std::string directory() const;

  // Ends the node or shard at once, as if its process were killed: its sockets are closed and its
  // memory is lost. REQUIRES: it runs.
  void KillNode(int node);
  void KillShard(int shard);
  // Starts it again under the same address and name. Errors as those of the daemons. REQUIRES: it
  // does not run.
  absl::Status RestartNode(int node);
  absl::Status RestartShard(int shard);
  bool node_runs(int node) const;

  // Runs `task` on the node's control loop and waits until it has run. REQUIRES: the node runs.
  void OnNode(int node, absl::AnyInvocable<void(Node&)> task);

 private:
  struct Member;
  explicit LocalCluster(LocalClusterOptions options, TemporaryFolder folder);
  absl::Status StartShard(int shard);
  absl::Status StartNode(int node);

  // Constant after Start.
  const LocalClusterOptions options_;
  const TemporaryFolder folder_;
  std::vector<net::Address> shard_addresses_;

  std::vector<std::unique_ptr<Member>> shards_;
  std::vector<std::unique_ptr<Member>> nodes_;
};

}  // namespace phalanx::runtime

#endif  // PHALANX_NODE_LOCAL_CLUSTER_H_
