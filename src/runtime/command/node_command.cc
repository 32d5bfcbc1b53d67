#include "src/runtime/command/node_command.h"

#include <unistd.h>

#include <iostream>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "src/common/log.h"
#include "src/common/status_macros.h"
#include "src/runtime/cluster_secret.h"
#include "src/runtime/command/daemon_flags.h"
#include "src/runtime/command/daemon_loop.h"
#include "src/runtime/machine.h"
#include "src/runtime/node_daemon.h"
#include "src/runtime/paths.h"

namespace phalanx::runtime {
namespace {

class NodeCommand : public Command {
 public:
  absl::string_view name() const override { return "node"; }
  absl::string_view summary() const override { return "Run the node of this host"; }
  absl::string_view details() const override {
    return "Waits for a directory that is not there yet. SIGTERM moves objects that are nowhere "
           "else\n"
           "to other nodes, then leaves; a second SIGTERM leaves at once.";
  }

  void AddFlags(Flags& flags) override {
    flags.Group("Node");
    flags.Setting("--directory", "The shards' addresses, in order of their index",
                  TextList(&config_.directories, "HOST:PORT,..."));
    flags.Setting("--directory-grpc",
                  "Reach the directory over gRPC instead of plain TCP: for proxies that let only "
                  "HTTP/2 through",
                  Switch(&config_.directory_over_grpc));
    flags.Setting("--name",
                  "Names the node for good; by default the host's name and the port, or, with port "
                  "0, a random number",
                  Text(&config_.node.name, "NAME"));
    flags.Setting("--listen", "Where peers reach it; port 0 takes a free one",
                  Text(&config_.node.listen, "HOST:PORT"));
    flags.Setting("--advertise", "What peers dial, if it is not what --listen says",
                  Text(&config_.node.advertise, "HOST:PORT"));
    flags.Setting(
        "--socket",
        "Where this host's clients reach it; by default $XDG_RUNTIME_DIR/phalanx/node.sock "
        "or /tmp/phalanx-UID/node.sock",
        Text(&config_.socket, "PATH"));
    flags.Setting("--label",
                  "Where the node is: zone=a, rack=7, host=b; links between different "
                  "ones are crossed as rarely as possible",
                  Labels(&config_.node.labels));
    flags.Setting("--transit-patience",
                  "How long a reference that left this host in a message is held, if nobody "
                  "claims it",
                  TimeSpan(&config_.node.transit_patience));
    flags.Setting("--drain-timeout", "How long SIGTERM tries to move objects that are only here",
                  TimeSpan(&config_.drain_timeout));
    flags.Setting("--metrics-listen", "Where Prometheus finds /metrics; without it nowhere",
                  Text(&config_.metrics_listen, "HOST:PORT"));
    flags.Setting("--metrics-open", "Metrics may be read from other hosts, without a secret",
                  Switch(&config_.metrics_open));
    AddNodeMemoryFlags(flags, &config_);
    AddNodeTransferFlags(flags, &config_);
    AddDaemonFlags(flags, &daemon_);
  }

  absl::Status Run() override {
    PHALANX_RETURN_IF_ERROR(PrepareDaemon(daemon_));
    PHALANX_RETURN_IF_ERROR(FillDefaults());
    DaemonLoop process(daemon_.log.file);
    PHALANX_ASSIGN_OR_RETURN(const std::unique_ptr<NodeDaemon> node,
                             NodeDaemon::Start(config_, process.loop()));
    // Printed only after the sockets are open, so that scripts can wait for this line.
    Announce(*node);
    absl::Status drained;
    // The signal starts the drain; its result becomes the exit code, so that an operator sees lost
    // objects.
    PHALANX_RETURN_IF_ERROR(process.Run([&node, &drained](std::function<void()> gone) {
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
    config_.node.process_id = static_cast<uint64_t>(getpid());
    PHALANX_ASSIGN_OR_RETURN(config_.node.secret, ReadClusterSecret(daemon_.secret_file));
    PHALANX_RETURN_IF_ERROR(SettleCapacity(&config_.node.capacity_bytes));
    // After the flags are known: the default name contains the port.
    if (config_.node.name.empty()) config_.node.name = DefaultNodeName(config_.node.listen);
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
