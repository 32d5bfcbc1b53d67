#include "src/node/node_daemon.h"

#include <algorithm>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "src/common/io/log.h"
#include "src/common/random.h"
#include "src/common/status_macros.h"
#include "src/directory/grpc/shard_connector.h"
#include "src/directory/session/byte_message_stream.h"
#include "src/local/local_service.h"
#include "src/net/stream/address.h"
#include "src/net/stream/require_loopback.h"
#include "src/net/tcp/tcp_network.h"
#include "src/node/host/machine.h"
#include "src/node/metrics.h"
#include "src/node/metrics_server.h"
#include "src/object_store/memory/memfd_memory.h"

namespace phalanx::runtime {
namespace {

constexpr int kMaxIoThreads = 64;
constexpr int kDefaultIoThreads = 4;
// How often the log repeats that a shard is unreachable.
constexpr absl::Duration kRepeatComplaint = absl::Minutes(1);

int IoThreads(int wanted) {
  if (wanted > 0) return std::min(wanted, kMaxIoThreads);
  return std::clamp(static_cast<int>(std::thread::hardware_concurrency()), 1, kDefaultIoThreads);
}

// Objects and the pool of warm memory together stay within the capacity.
object_store::MemfdMemoryOptions MemoryOptions(uint64_t capacity_bytes) {
  object_store::MemfdMemoryOptions options;
  options.max_bytes = capacity_bytes;
  options.available = [] { return AvailableMemory("").value_or(UINT64_MAX); };
  return options;
}

absl::Status Validate(const NodeConfig& config) {
  PHALANX_RETURN_IF_ERROR(
      net::RequireLoopbackWithoutSecret(config.node.listen, config.node.secret));
  // Peers could not dial a bad address; the operator should see that at the start.
  if (!config.node.advertise.empty()) {
    PHALANX_RETURN_IF_ERROR(net::ParseHostPort(config.node.advertise).status());
  }
  for (const net::Address& directory : config.directories) {
    PHALANX_RETURN_IF_ERROR(net::ParseHostPort(directory).status());
  }
  return absl::OkStatus();
}

// Logs once that a shard is unreachable, repeats it rarely, and logs that it is back.
class ShardWatch {
 public:
  ShardWatch(Executor& loop, std::vector<net::Address> shards)
      : loop_(loop), shards_(std::move(shards)), seen_(shards_.size()) {}

  void OnState(int shard, const absl::Status& state) {
    Seen& seen = seen_[static_cast<size_t>(shard)];
    const bool changed = seen.spoken_at.infinite() || seen.ok != state.ok();
    // Attempts to reconnect fail again and again while a shard is down. Only a change, or the
    // interval, is logged.
    if (!changed && (state.ok() || loop_.Now() < seen.spoken_at + kRepeatComplaint)) return;
    seen = {state.ok(), loop_.Now()};
    if (state.ok()) {
      PHALANX_LOG(INFO) << "connected to the directory" << LogField("shard", shard)
                        << LogField("address", shards_[static_cast<size_t>(shard)]);
    } else {
      PHALANX_LOG(WARNING) << "waiting for the directory" << LogField("shard", shard)
                           << LogField("address", shards_[static_cast<size_t>(shard)])
                           << LogField("why", state.ToString());
    }
  }

 private:
  struct Seen {
    bool ok = false;
    Instant spoken_at = Instant::Infinite();  // never logged
  };
  Executor& loop_;
  const std::vector<net::Address> shards_;
  std::vector<Seen> seen_;
};

// Prometheus knows only doubles; counts stay exact up to 2^53.
double Number(uint64_t value) { return static_cast<double>(value); }

void AddStoreMetrics(const object_store::StoreStats& stats, MetricsText& out) {
  out.Gauge("phalanx_node_capacity_bytes", "Capacity for objects in bytes.",
            Number(stats.capacity_bytes));
  out.Gauge("phalanx_node_used_bytes", "Bytes reserved for objects.", Number(stats.used_bytes));
  out.Gauge("phalanx_node_pinned_bytes", "Bytes that cannot be evicted.",
            Number(stats.pinned_bytes));
  out.Gauge("phalanx_node_objects", "Copies on this node, complete or partial.",
            Number(stats.objects));
  out.Gauge("phalanx_node_clients", "Connected clients.", Number(stats.clients));
  out.Gauge("phalanx_node_pins", "Pins that clients hold.", Number(stats.pins));
  out.Gauge("phalanx_node_waiting_gets", "Waiting Gets.", Number(stats.waiting_gets));
  out.Gauge("phalanx_node_waiting_for_memory", "Requests that wait for memory.",
            Number(stats.waiting_for_memory));
  out.Counter("phalanx_node_evictions_total", "Secondary copies evicted to free memory.",
              Number(stats.evictions));
  out.Counter("phalanx_node_pulls_started_total", "Pulls started.", Number(stats.pulls_started));
  out.Counter("phalanx_node_pulls_failed_total", "Pulls that ended before their last byte.",
              Number(stats.pulls_failed));
  out.Counter("phalanx_node_conflicts_total", "Acknowledged Puts dropped because of a conflict.",
              Number(stats.conflicts));
  out.Gauge("phalanx_node_held_objects", "Objects that clients of this node hold.",
            Number(stats.held));
  out.Gauge("phalanx_node_transits", "References in transit from this node.",
            Number(stats.transits));
  out.Counter("phalanx_node_transits_unclaimed_total",
              "References in transit that were not claimed in time.", Number(stats.unclaimed));
  out.Counter("phalanx_node_transits_cut_short_total",
              "References in transit dropped early because there were too many.",
              Number(stats.cut_short));
}

void AddReductionMetrics(const collectives::Reducer::Stats& stats, MetricsText& out) {
  out.Gauge("phalanx_node_folds", "Folds of reductions on this node.", Number(stats.folds));
  out.Gauge("phalanx_node_fold_scratch_bytes", "Scratch bytes that folds use besides objects.",
            Number(stats.scratch_bytes));
  out.Gauge("phalanx_node_waiting_reductions", "Calls that wait for a reduction.",
            Number(stats.waiting));
  out.Counter("phalanx_node_folds_total", "Completed folds.", Number(stats.folds_done));
  out.Counter("phalanx_node_folded_bytes_total", "Bytes of operands folded.",
              Number(stats.bytes_folded));
}

void AddJobMetrics(Node& node, MetricsText& out) {
  const jobs::Members::Stats members = node.members().stats();
  out.Gauge("phalanx_node_members", "Live members of jobs on this node.", Number(members.members));
  out.Gauge("phalanx_node_joins_waiting", "Joins without a reply.", Number(members.joining));
  const jobs::GroupServiceStats& calls = node.groups().stats();
  out.Gauge("phalanx_node_group_calls", "Calls of groups in progress.", Number(calls.under_way));
  out.Counter("phalanx_node_group_calls_ended_total", "Calls of groups that ended with a result.",
              Number(calls.ended));
  out.Counter("phalanx_node_group_calls_failed_total", "Calls of groups that failed.",
              Number(calls.failed));
}

void AddLinkMetrics(const net::LinkStats& stats, MetricsText& out) {
  out.Gauge("phalanx_node_links", "Links with other nodes.", stats.links);
  out.Gauge("phalanx_node_links_connected", "Links with a connection.", stats.connections);
  out.Gauge("phalanx_node_link_queued_bytes", "Bytes of messages that are not acknowledged.",
            Number(stats.queued_bytes));
  out.Counter("phalanx_node_links_lost_total", "Links that were given up.", Number(stats.lost));
  out.Counter("phalanx_node_link_connects_total", "Connections of links that were made.",
              Number(stats.connects));
  out.Counter("phalanx_node_link_messages_sent_total", "Messages sent over links.",
              Number(stats.messages_sent));
  out.Counter("phalanx_node_link_messages_received_total", "Messages received over links.",
              Number(stats.messages_received));
}

void AddTransferMetrics(const net::DataPlaneStats& stats, MetricsText& out) {
  out.Counter("phalanx_node_sent_bytes_total", "Object bytes sent to peers.",
              Number(stats.bytes_sent));
  out.Counter("phalanx_node_received_bytes_total", "Object bytes received from peers.",
              Number(stats.bytes_received));
  out.Counter("phalanx_node_wasted_bytes_total", "Received bytes that were not needed.",
              Number(stats.bytes_wasted));
  out.Gauge("phalanx_node_pulls_active", "Pulls in progress.", stats.pulls_active);
  out.Gauge("phalanx_node_pushes_active", "Pulls of peers in progress.", stats.pushes_active);
  out.Gauge("phalanx_node_peer_connections", "Connections with peers.", stats.connections);
  out.Counter("phalanx_node_handshakes_refused_total",
              "Handshakes with a different cluster or secret.", Number(stats.handshakes_refused));
  out.Counter("phalanx_node_frames_refused_total", "Malformed messages from peers.",
              Number(stats.frames_refused));
}

}  // namespace

// Built from the bottom up; destroyed in the opposite order.
struct NodeDaemon::Impl {
  Impl(NodeConfig config, net::EventLoop& control)
      : config(std::move(config)),
        control(control),
        memory(control, MemoryOptions(this->config.node.capacity_bytes)),
        shard_watch(control, this->config.directories) {}
  ~Impl() {
    control.Cancel(give_up_timer);
    // A shard's state can change while the node is destroyed.
    left = nullptr;
    metrics.reset();
    service.reset();
    node.reset();
    // The loops stop last: the members above post to them until they are destroyed.
    for (auto& loop : io) loop->Stop();
  }

  absl::Status Start();
  NodeSeams MakeSeams();
  std::string CollectMetrics() const;
  // While the node leaves: ends the drain if no shard can be reached for long. Only the directory
  // can find other nodes for objects.
  void ReviewLeaving();
  void EndLeaving(const absl::Status& status);

  const NodeConfig config;
  net::EventLoop& control;
  std::vector<std::unique_ptr<net::EventLoop>> io;
  net::TcpNetwork network;
  object_store::MemfdMemory memory;
  ShardWatch shard_watch;
  std::unique_ptr<Node> node;
  std::unique_ptr<object_store::LocalService> service;
  std::unique_ptr<MetricsServer> metrics;
  // Null unless the node leaves.
  absl::AnyInvocable<void(absl::Status)> left;
  TimerId give_up_timer = 0;
};

absl::Status NodeDaemon::Impl::Start() {
  PHALANX_RETURN_IF_ERROR(Validate(config));
  const int threads = IoThreads(config.io_threads);
  for (int i = 0; i < threads; ++i) {
    // Started before the node, which hands its connections to them.
    io.push_back(std::make_unique<net::EventLoop>());
    PHALANX_RETURN_IF_ERROR(io.back()->Start(absl::StrCat("phalanx-io-", i)));
  }
  // A copy, because the configuration stays constant.
  NodeOptions options = config.node;
  options.data_plane.on_rejected_peer = [](absl::string_view peer, const absl::Status& why) {
    PHALANX_LOG_EVERY(WARNING, absl::Seconds(1))
        << "refused a peer" << LogField("peer", peer) << LogField("cause", why.message());
  };
  PHALANX_ASSIGN_OR_RETURN(node, Node::Start(options, MakeSeams()));
  object_store::LocalServiceOptions local;
  local.socket_path = config.socket;
  // Clients pass the directory's address on to tools.
  local.greeting = {node->name(), absl::StrJoin(config.directories, ","), node->key()};
  // The memory of a killed client can be reused only after the process has ended, so this is the
  // time to check.
  local.client_process_ended = [this] { memory.Reconsider(); };
  PHALANX_ASSIGN_OR_RETURN(service, object_store::LocalService::Start(
                                        control,
                                        {node->store(), node->reducer(), node->members(),
                                         node->messages(), &node->groups(), &node->group_memory()},
                                        std::move(local)));
  if (!config.metrics_listen.empty()) {
    PHALANX_RETURN_IF_ERROR(CheckMetricsAddress(config.metrics_listen, config.metrics_open));
    PHALANX_ASSIGN_OR_RETURN(metrics, MetricsServer::Start(control, network, config.metrics_listen,
                                                           [this] { return CollectMetrics(); }));
  }
  return absl::OkStatus();
}

NodeSeams NodeDaemon::Impl::MakeSeams() {
  std::vector<Executor*> loops;
  for (auto& loop : io) loops.push_back(loop.get());
  std::vector<std::unique_ptr<directory::ShardConnector>> shards;
  for (const net::Address& address : config.directories) {
    // In one process the session needs no socket.
    if (config.local_directory != nullptr) {
      shards.push_back(config.local_directory->NewConnector(address));
    } else if (config.directory_over_grpc) {
      shards.push_back(directory::NewGrpcShardConnector(address));
    } else {
      shards.push_back(directory::NewByteShardConnector(network, address));
    }
  }
  return NodeSeams{
      .control = control,
      .io = std::move(loops),
      .network = network,
      .memory = memory,
      .shards = std::move(shards),
      .random = Random(SystemRandom64()),
      .nonce_bytes = {},
      .on_shard_state =
          [this](int shard, const absl::Status& state) {
            shard_watch.OnState(shard, state);
            ReviewLeaving();
          },
  };
}

void NodeDaemon::Impl::ReviewLeaving() {
  if (!left) return;
  const std::vector<absl::Status> shards = node->ShardStates();
  const bool reachable =
      std::any_of(shards.begin(), shards.end(), [](const absl::Status& s) { return s.ok(); });
  if (reachable) {
    control.Cancel(std::exchange(give_up_timer, 0));
  } else if (give_up_timer == 0) {
    // A shard that comes back in this time has the other half for the drain.
    give_up_timer = control.RunAt(control.Now() + config.drain_timeout / 2, [this] {
      give_up_timer = 0;
      EndLeaving(absl::UnavailableError(
          absl::StrCat("node ", node->name(), ": no shard of the directory can be reached (",
                       node->ShardStates().front().message(),
                       "): objects of which this node has the only copy are lost")));
    });
  }
}

void NodeDaemon::Impl::EndLeaving(const absl::Status& status) {
  if (left) std::exchange(left, nullptr)(status);
}

std::string NodeDaemon::Impl::CollectMetrics() const {
  MetricsText text;
  AddStoreMetrics(node->store().stats(), text);
  AddTransferMetrics(node->data_plane_stats(), text);
  AddReductionMetrics(node->reducer().stats(), text);
  AddJobMetrics(*node, text);
  AddLinkMetrics(node->links().stats(), text);
  const object_store::SharedMemoryStats shared = memory.stats();
  text.Gauge("phalanx_node_pooled_bytes", "Bytes of free memory kept warm.",
             Number(shared.pooled_bytes));
  text.Gauge("phalanx_node_condemned_bytes", "Bytes that a lost client can still see.",
             Number(shared.condemned_bytes));
  // Each file uses a descriptor, which is a limited resource.
  text.Gauge("phalanx_node_files", "Shared memory files.", Number(shared.files));
  // One sample per shard, so that an alert can name the shard.
  const std::vector<absl::Status> states = node->ShardStates();
  for (size_t shard = 0; shard < states.size(); ++shard) {
    text.Gauge("phalanx_node_shard_connected", "1 while the directory's shard is connected.",
               states[shard].ok() ? 1 : 0, {{"shard", absl::StrCat(shard)}});
  }
  const net::EventLoop::Stats loop = control.stats();
  text.Counter("phalanx_node_control_turns_total", "Turns of the control loop.",
               Number(loop.turns));
  text.Gauge("phalanx_node_control_longest_turn_seconds",
             "Longest turn of the control loop so far.", absl::ToDoubleSeconds(loop.longest_turn));
  text.Counter("phalanx_node_lost_log_lines_total", "Log lines that could not be written.",
               Number(LostLogLines()));
  return text.text();
}

absl::StatusOr<std::unique_ptr<NodeDaemon>> NodeDaemon::Start(NodeConfig config,
                                                              net::EventLoop& control) {
  auto impl = std::make_unique<Impl>(std::move(config), control);
  PHALANX_RETURN_IF_ERROR(impl->Start());
  return std::unique_ptr<NodeDaemon>(new NodeDaemon(std::move(impl)));
}

NodeDaemon::NodeDaemon(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
NodeDaemon::~NodeDaemon() = default;

Node& NodeDaemon::node() { return *impl_->node; }
std::string NodeDaemon::client_address() const { return impl_->service->address(); }

net::Address NodeDaemon::metrics_address() const {
  return impl_->metrics == nullptr ? "" : impl_->metrics->address();
}

void NodeDaemon::Leave(absl::AnyInvocable<void(absl::Status)> done) {
  bool holds_something = false;
  for (const object_store::Store::CopyInfo& copy : impl_->node->store().Copies()) {
    holds_something = holds_something || copy.complete;
  }
  // Without a copy there is nothing to move, and the directory does not need to be reachable.
  if (!holds_something || impl_->config.drain_timeout == absl::ZeroDuration()) {
    impl_->control.Post([done = std::move(done)]() mutable { done(absl::OkStatus()); });
    return;
  }
  // It can take the whole time, and an operator must not take that for a hang.
  PHALANX_LOG(INFO) << "moving what only this node has to other nodes; a second signal ends this"
                    << LogField("timeout", absl::FormatDuration(impl_->config.drain_timeout));
  impl_->left = std::move(done);
  impl_->node->Drain(
      impl_->control.Now() + impl_->config.drain_timeout,
      [impl = impl_.get()](const absl::Status& status) { impl->EndLeaving(status); });
  impl_->ReviewLeaving();
}

std::string DefaultNodeName(const net::Address& listen) {
  const absl::StatusOr<net::HostPort> place = net::ParseHostPort(listen);
  // A restart on the same port gets the same name, and so replaces its earlier incarnation at once.
  if (place.ok() && place->port != 0) return absl::StrCat(ShortHostName(), "-", place->port);
  return absl::StrCat(ShortHostName(), "-",
                      absl::Hex(static_cast<uint32_t>(SystemRandom64()), absl::kZeroPad8));
}

}  // namespace phalanx::runtime
