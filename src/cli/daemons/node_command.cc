#include "src/cli/daemons/node_command.h"

#include <unistd.h>

#include <iostream>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "src/cli/daemons/daemon_flags.h"
#include "src/cli/daemons/daemon_loop.h"
#include "src/common/io/log.h"
#include "src/common/status_macros.h"
#include "src/node/host/cluster_secret.h"
#include "src/node/host/machine.h"
#include "src/node/host/paths.h"
#include "src/node/node_daemon.h"

namespace phalanx::runtime {
namespace {

class NodeCommand : public Command {
 public:
  absl::string_view name() const override { return "node"; }
  absl::string_view summary() const override { return "Run the node of this host"; }
  absl::string_view details() const override {
    return "Waits for a directory that does not run yet. SIGTERM moves objects whose only copy is "
           "here\n"
           "to other nodes and then ends the node; a second SIGTERM ends it at once.";
  }

  bool output_is_result() const override { return false; }

  void AddFlags(Flags& flags) override {
    flags.Group("Node");
    flags.Setting("--directory", "The shards' addresses, in order of their index",
                  TextList(&config_.directories, "HOST:PORT,..."));
    flags.Setting(
        "--directory-grpc",
        "Connect to the directory over gRPC instead of plain TCP, for proxies that pass only "
        "HTTP/2",
        Switch(&config_.directory_over_grpc));
    flags.Setting(
        "--name",
        "The node's permanent name; by default the host's name and the port or, with port "
        "0, a random number",
        Text(&config_.node.name, "NAME"));
    flags.Setting("--listen", "Address for peers; port 0 chooses a free port",
                  Text(&config_.node.listen, "HOST:PORT"));
    flags.Setting("--advertise", "Address that peers dial, if it differs from --listen",
                  Text(&config_.node.advertise, "HOST:PORT"));
    flags.Setting("--socket",
                  "Socket for this host's clients; by default $XDG_RUNTIME_DIR/phalanx/node.sock "
                  "or /tmp/phalanx-UID/node.sock",
                  Text(&config_.socket, "PATH"));
    flags.Setting("--label",
                  "The node's location: zone=a, rack=7, host=b; transfers cross links "
                  "between locations as rarely as possible",
                  Labels(&config_.node.labels));
    flags.Setting("--transit-patience",
                  "How long a reference in transit from this host is held if no process "
                  "claims it",
                  TimeSpan(&config_.node.transit_patience));
    flags.Setting("--drain-timeout",
                  "How long SIGTERM tries to move objects whose only copy is here",
                  TimeSpan(&config_.drain_timeout));
    flags.Setting("--metrics-listen", "Address of /metrics for Prometheus; by default none",
                  Text(&config_.metrics_listen, "HOST:PORT"));
    flags.Setting("--metrics-open", "Allow other hosts to read metrics without a secret",
                  Switch(&config_.metrics_open));
    AddNodeMemoryFlags(flags, &config_);
    AddNodeTransferFlags(flags, &config_);
    AddDaemonFlags(flags, &daemon_);
  }

  absl::Status Run() override {
    PHALANX_RETURN_IF_ERROR(PrepareDaemon(daemon_));
    PHALANX_RETURN_IF_ERROR(FillDefaults());
    DaemonLoop process(daemon_.log.file, DaemonLoop::OnHangup::kReopenLog);
    PHALANX_ASSIGN_OR_RETURN(const std::unique_ptr<NodeDaemon> node,
                             NodeDaemon::Start(config_, process.loop()));
    // Printed only after the sockets are open, so that scripts can wait for this line.
    Announce(*node);
    absl::Status drained;
    // The signal starts the drain; its result becomes the exit code, so that an operator sees lost
    // objects.
    PHALANX_RETURN_IF_ERROR(process.Run([&node, &drained](std::function<void()> gone) {
      // A drain that runs out of time is an error: objects are lost then.
      node->Leave([&drained, gone = std::move(gone)](const absl::Status& status) {
        drained = status;
        gone();
      });
    }));
    return drained;
  }

 private:
  absl::Status FillDefaults() {
    config_.node.cluster_id = daemon_.cluster_id;
    // Shown by `status`, so that an operator finds the process of a node.
    config_.node.process_id = static_cast<uint64_t>(getpid());
    PHALANX_ASSIGN_OR_RETURN(config_.node.secret, ReadClusterSecret(daemon_.secret_file));
    PHALANX_RETURN_IF_ERROR(SettleCapacity(&config_.node.capacity_bytes));
    PHALANX_RETURN_IF_ERROR(CheckUtf8("--cluster-id", daemon_.cluster_id));
    PHALANX_RETURN_IF_ERROR(CheckUtf8("--advertise", config_.node.advertise));
    PHALANX_RETURN_IF_ERROR(CheckUtf8("--name", config_.node.name));
    for (const auto& [key, value] : config_.node.labels) {
      PHALANX_RETURN_IF_ERROR(CheckUtf8("--label", absl::StrCat(key, "=", value)));
    }
    // After the flags are known: the default name contains the port.
    if (config_.node.name.empty()) config_.node.name = DefaultNodeName(config_.node.listen);
    // Clients write "unix:PATH", so operators do too.
    config_.socket = std::string(absl::StripPrefix(config_.socket, "unix:"));
    if (config_.socket.empty()) config_.socket = DefaultSocketPath();
    return absl::OkStatus();
  }

  void Announce(NodeDaemon& daemon) const {
    if (daemon_.json) {
      std::cout << nlohmann::json{{"role", "node"},
                                  {"name", daemon.node().name()},
                                  {"address", daemon.node().address()},
                                  {"socket", daemon.client_address()},
                                  {"capacity_bytes", config_.node.capacity_bytes},
                                  {"metrics", daemon.metrics_address()},
                                  {"process_id", getpid()}}
                << std::endl;
      return;
    }
    std::cout << "node: " << daemon.node().name() << " listens on " << daemon.node().address()
              << ", for clients on " << daemon.client_address() << std::endl;
  }

  NodeConfig config_;
  DaemonFlags daemon_;
};

}  // namespace

std::unique_ptr<Command> NewNodeCommand() { return std::make_unique<NodeCommand>(); }

}  // namespace phalanx::runtime
