#include "src/node/local_cluster.h"

#include <future>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "src/common/check.h"
#include "src/common/status_macros.h"
#include "src/net/loop/file_descriptor_limit.h"
#include "src/net/tcp/tcp_network.h"

namespace phalanx::runtime {
namespace {

constexpr char kAnyPort[] = "127.0.0.1:0";

}  // namespace

// One daemon on its own loop; the destructor ends it. The daemon is created before the loop starts
// and destroyed after the loop has stopped, both on the caller's thread.
struct LocalCluster::Member {
  ~Member() {
    loop.Stop();
    shard.reset();
    node.reset();
  }

  net::EventLoop loop;
  net::TcpNetwork network;
  std::unique_ptr<DirectoryDaemon> shard;
  std::unique_ptr<NodeDaemon> node;
};

LocalCluster::LocalCluster(LocalClusterOptions options, TemporaryFolder folder)
    : options_(std::move(options)),
      folder_(std::move(folder)),
      shard_addresses_(static_cast<size_t>(options_.shards), kAnyPort),
      shards_(static_cast<size_t>(options_.shards)),
      nodes_(static_cast<size_t>(options_.nodes)) {}

LocalCluster::~LocalCluster() {
  // Nodes first: they would otherwise log the loss of their shards.
  nodes_.clear();
  shards_.clear();
}

absl::StatusOr<std::unique_ptr<LocalCluster>> LocalCluster::Start(LocalClusterOptions options) {
  if (options.shards < 1 || options.nodes < 0) {
    return absl::InvalidArgumentError("a cluster has at least one shard");
  }
  // All members share one process, and so one limit of descriptors.
  PHALANX_RETURN_IF_ERROR(net::RaiseFileDescriptorLimit().status());
  PHALANX_ASSIGN_OR_RETURN(TemporaryFolder folder, TemporaryFolder::Make());
  auto cluster =
      std::unique_ptr<LocalCluster>(new LocalCluster(std::move(options), std::move(folder)));
  for (int i = 0; i < cluster->shards(); ++i) PHALANX_RETURN_IF_ERROR(cluster->StartShard(i));
  for (int i = 0; i < cluster->nodes(); ++i) PHALANX_RETURN_IF_ERROR(cluster->StartNode(i));
  return cluster;
}

absl::Status LocalCluster::StartShard(int shard) {
  const size_t index = static_cast<size_t>(shard);
  DirectoryConfig config;
  // An ephemeral port at the first start, and the same port at a restart.
  config.listen = shard_addresses_[index];
  config.shard_index = shard;
  config.num_shards = options_.shards;
  config.secret = options_.secret;
  config.core = options_.directory;
  // A first life gets a new port, which no node knows yet, so no node can have registered before.
  config.core.first_life = config.listen == kAnyPort;
  auto member = std::make_unique<Member>();
  PHALANX_ASSIGN_OR_RETURN(member->shard,
                           DirectoryDaemon::Start(config, member->loop, member->network));
  // A restart binds the same port, which the nodes have in their configuration.
  shard_addresses_[index] = member->shard->address();
  PHALANX_RETURN_IF_ERROR(member->loop.Start(absl::StrCat("shard-", shard)));
  shards_[index] = std::move(member);
  return absl::OkStatus();
}

absl::Status LocalCluster::StartNode(int node) {
  NodeConfig config;
  config.node.name = NodeName(node);
  config.node.capacity_bytes = options_.capacity_bytes;
  config.node.secret = options_.secret;
  config.node.data_plane = options_.data_plane;
  config.directories = shard_addresses_;
  // The same path after a restart, so that clients can reconnect.
  config.socket = absl::StrCat(folder_.path(), "/", NodeName(node), ".sock");
  config.io_threads = options_.io_threads;
  // Last, so that a test can override every setting above.
  if (options_.configure_node) options_.configure_node(node, config);
  auto member = std::make_unique<Member>();
  PHALANX_ASSIGN_OR_RETURN(member->node, NodeDaemon::Start(std::move(config), member->loop));
  PHALANX_RETURN_IF_ERROR(member->loop.Start(NodeName(node)));
  nodes_[static_cast<size_t>(node)] = std::move(member);
  return absl::OkStatus();
}

int LocalCluster::nodes() const { return static_cast<int>(nodes_.size()); }
int LocalCluster::shards() const { return static_cast<int>(shards_.size()); }
std::string LocalCluster::NodeName(int node) { return absl::StrCat("n", node); }

std::string LocalCluster::client_address(int node) const {
  return absl::StrCat("unix:", folder_.path(), "/", NodeName(node), ".sock");
}

std::string LocalCluster::directory() const { return absl::StrJoin(shard_addresses_, ","); }

void LocalCluster::KillNode(int node) {
  PHALANX_CHECK(node_runs(node), "a node is killed while it runs");
  nodes_[static_cast<size_t>(node)].reset();
}

void LocalCluster::KillShard(int shard) {
  PHALANX_CHECK(shards_[static_cast<size_t>(shard)] != nullptr, "a shard is killed while it runs");
  shards_[static_cast<size_t>(shard)].reset();
}

absl::Status LocalCluster::RestartNode(int node) {
  PHALANX_CHECK(!node_runs(node), "a node is started when it does not run");
  return StartNode(node);
}

absl::Status LocalCluster::RestartShard(int shard) {
  PHALANX_CHECK(shards_[static_cast<size_t>(shard)] == nullptr,
                "a shard is started when it does not run");
  return StartShard(shard);
}

bool LocalCluster::node_runs(int node) const {
  return nodes_[static_cast<size_t>(node)] != nullptr;
}

void LocalCluster::OnNode(int node, absl::AnyInvocable<void(Node&)> task) {
  PHALANX_CHECK(node_runs(node), "the node runs");
  Member& member = *nodes_[static_cast<size_t>(node)];
  std::promise<void> ran;
  member.loop.Post([&member, &task, &ran] {
    // The caller waits, so references to its variables are safe.
    task(member.node->node());
    ran.set_value();
  });
  ran.get_future().wait();
}

}  // namespace phalanx::runtime
