#include "src/node/directory_daemon.h"

#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "src/common/io/log.h"
#include "src/common/random.h"
#include "src/common/status_macros.h"
#include "src/directory/grpc/port_multiplexer.h"
#include "src/directory/session/shard.h"
#include "src/node/metrics.h"
#include "src/node/metrics_server.h"

namespace phalanx::runtime {
namespace {

constexpr int kMaxShards = 4096;

absl::Status Validate(const DirectoryConfig& config) {
  if (config.num_shards < 1 || config.num_shards > kMaxShards || config.shard_index < 0 ||
      config.shard_index >= config.num_shards) {
    return absl::InvalidArgumentError(absl::StrCat("shard ", config.shard_index, " of ",
                                                   config.num_shards, " does not exist (at most ",
                                                   kMaxShards, " shards)"));
  }
  // A shorter lease would expire under ordinary scheduling delays; a longer one would leave dead
  // nodes in the directory.
  if (config.core.lease < absl::Milliseconds(100) || config.core.lease > absl::Hours(1)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the lease is ", absl::FormatDuration(config.core.lease), ", not between 100ms and 1h"));
  }
  if (config.reconnect_grace < absl::ZeroDuration()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the reconnect grace is ", absl::FormatDuration(config.reconnect_grace), ", below 0"));
  }
  return absl::OkStatus();
}

std::string CollectMetrics(const directory::Shard& shard) {
  v1::GetStatusResponse status;
  shard.FillStatus(&status);
  MetricsText metrics;
  metrics.Gauge("phalanx_directory_uptime_seconds", "Seconds since this shard started.",
                static_cast<double>(status.uptime_ns()) / 1e9);
  // A node keeps its session for the grace time after its stream broke, so both numbers are
  // reported.
  double connected = 0;
  for (const v1::NodeStatus& node : status.nodes()) connected += node.connected() ? 1 : 0;
  metrics.Gauge("phalanx_directory_nodes", "Nodes with a session.", status.nodes_size());
  metrics.Gauge("phalanx_directory_nodes_connected", "Nodes with a connected stream.", connected);
  metrics.Gauge("phalanx_directory_objects", "Objects that this shard knows.",
                static_cast<double>(status.objects()));
  metrics.Gauge("phalanx_directory_tombstones", "Tombstones of deleted objects.",
                static_cast<double>(status.tombstones()));
  metrics.Gauge("phalanx_directory_inline_bytes", "Bytes of small objects in the inline cache.",
                static_cast<double>(status.inline_bytes()));
  metrics.Gauge("phalanx_directory_waiting", "Waiting nodes, summed over all objects.",
                static_cast<double>(status.waiting()));
  // Sorted by name, so that the samples of each scrape have the same order.
  std::map<std::string, uint64_t> counters(status.counters().begin(), status.counters().end());
  // A gauge has a name of its own.
  for (const std::string& name : status.gauges()) {
    metrics.Gauge(absl::StrCat("phalanx_directory_", name), "Current number.",
                  static_cast<double>(counters.at(name)));
    counters.erase(name);
  }
  for (const auto& [name, value] : counters) {
    // One metric with a label, so that a new event needs no new metric.
    metrics.Counter("phalanx_directory_events_total", "Events by kind.", static_cast<double>(value),
                    {{"event", name}});
  }
  return metrics.text();
}

// An expected end of a session is INFO, any other is a WARNING. The rate limit keeps a burst of
// either from filling the disk.
void LogEvent(absl::string_view event, absl::string_view node, const absl::Status& why) {
  if (why.ok()) {
    PHALANX_LOG_EVERY(INFO, absl::Milliseconds(100)) << event << LogField("node", node);
    return;
  }
  PHALANX_LOG_EVERY(WARNING, absl::Milliseconds(100))
      << event << LogField("node", node) << LogField("error", why.ToString());
}

}  // namespace

struct DirectoryDaemon::Impl {
  Impl(Executor& control, directory::SessionConfig session, const DirectoryConfig& config)
      : shard(control, std::move(session), config.core, Random(SystemRandom64())),
        local_door([this](std::unique_ptr<directory::ShardStream> stream) {
          shard.Accept(std::move(stream));
        }) {}

  directory::Shard shard;
  const directory::LocalDoor local_door;
  // Destroyed before the shard that they serve.
  std::unique_ptr<directory::PortMultiplexer> port;
  std::unique_ptr<MetricsServer> metrics;
};

absl::StatusOr<std::unique_ptr<DirectoryDaemon>> DirectoryDaemon::Start(
    const DirectoryConfig& config, Executor& control, net::TcpNetwork& network) {
  PHALANX_RETURN_IF_ERROR(Validate(config));
  directory::SessionConfig session;
  session.cluster_id = config.cluster_id;
  session.secret = config.secret;
  // The handshake carries the index and the number of shards, so a node with a wrong list is
  // refused.
  session.shard_index = static_cast<uint32_t>(config.shard_index);
  session.num_shards = static_cast<uint32_t>(config.num_shards);
  session.lease = config.core.lease;
  session.reconnect_grace = config.reconnect_grace;
  auto impl = std::make_unique<Impl>(control, std::move(session), config);
  // The observer is set before the port opens, so that it sees the first session too.
  impl->shard.Observe(LogEvent);
  PHALANX_ASSIGN_OR_RETURN(
      impl->port, directory::PortMultiplexer::Listen(config.listen, control, network, impl->shard));
  if (!config.metrics_listen.empty()) {
    PHALANX_RETURN_IF_ERROR(CheckMetricsAddress(config.metrics_listen, config.metrics_open));
    PHALANX_ASSIGN_OR_RETURN(
        impl->metrics,
        MetricsServer::Start(control, network, config.metrics_listen,
                             [shard = &impl->shard] { return CollectMetrics(*shard); }));
  }
  return std::unique_ptr<DirectoryDaemon>(new DirectoryDaemon(std::move(impl)));
}

DirectoryDaemon::DirectoryDaemon(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
DirectoryDaemon::~DirectoryDaemon() = default;

const net::Address& DirectoryDaemon::address() const { return impl_->port->address(); }

net::Address DirectoryDaemon::metrics_address() const {
  return impl_->metrics == nullptr ? "" : impl_->metrics->address();
}

const directory::LocalDoor& DirectoryDaemon::local_door() const { return impl_->local_door; }

}  // namespace phalanx::runtime
