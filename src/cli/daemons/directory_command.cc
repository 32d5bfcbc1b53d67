#include "src/cli/daemons/directory_command.h"

#include <unistd.h>

#include <iostream>
#include <nlohmann/json.hpp>
#include <utility>

#include "src/cli/daemons/daemon_flags.h"
#include "src/cli/daemons/daemon_loop.h"
#include "src/common/io/log.h"
#include "src/common/status_macros.h"
#include "src/net/tcp/tcp_network.h"
#include "src/node/directory_daemon.h"
#include "src/node/host/cluster_secret.h"

namespace phalanx::runtime {
namespace {

class DirectoryCommand : public Command {
 public:
  absl::string_view name() const override { return "directory"; }
  absl::string_view summary() const override { return "Run a shard of the directory"; }
  absl::string_view details() const override {
    return "Keeps nothing on disk: after a restart it rebuilds its state from the nodes' reports.";
  }

  bool output_is_result() const override { return false; }

  void AddFlags(Flags& flags) override {
    flags.Group("Directory");
    flags.Setting("--listen", "Address for nodes and tools; port 0 chooses a free port",
                  Text(&config_.listen, "HOST:PORT"));
    flags.Setting("--shard-index", "Index of this shard, from 0",
                  Integer(&config_.shard_index, 0, 4095));
    flags.Setting("--num-shards", "Number of shards of the directory",
                  Integer(&config_.num_shards, 1, 4096));
    AddShardFlags(flags, &config_);
    flags.Setting("--metrics-listen", "Address of /metrics for Prometheus; by default none",
                  Text(&config_.metrics_listen, "HOST:PORT"));
    flags.Setting("--metrics-open", "Allow other hosts to read metrics without a secret",
                  Switch(&config_.metrics_open));
    AddDaemonFlags(flags, &daemon_);
  }

  absl::Status Run() override {
    PHALANX_RETURN_IF_ERROR(PrepareDaemon(daemon_));
    PHALANX_RETURN_IF_ERROR(CheckUtf8("--cluster-id", daemon_.cluster_id));
    config_.cluster_id = daemon_.cluster_id;
    // Read from a file or the environment, never from a flag: flags are visible in the process
    // list.
    PHALANX_ASSIGN_OR_RETURN(config_.secret, ReadClusterSecret(daemon_.secret_file));
    DaemonLoop process(daemon_.log.file, DaemonLoop::OnHangup::kReopenLog);
    net::TcpNetwork network;
    PHALANX_ASSIGN_OR_RETURN(const std::unique_ptr<DirectoryDaemon> daemon,
                             DirectoryDaemon::Start(config_, process.loop(), network));
    // Printed only after the port is open, so that scripts can wait for this line.
    Announce(*daemon);
    // A shard has nothing to move, so it leaves at the first signal.
    return process.Run([](const std::function<void()>& gone) { gone(); });
  }

 private:
  void Announce(const DirectoryDaemon& daemon) const {
    if (daemon_.json) {
      std::cout << nlohmann::json{{"role", "directory"},
                                  {"address", daemon.address()},
                                  {"shard_index", config_.shard_index},
                                  {"num_shards", config_.num_shards},
                                  {"cluster_id", config_.cluster_id},
                                  {"metrics", daemon.metrics_address()},
                                  {"process_id", getpid()}}
                << std::endl;
      return;
    }
    std::cout << "directory: shard " << config_.shard_index << " of " << config_.num_shards
              << " of cluster " << config_.cluster_id << " listens on " << daemon.address()
              << std::endl;
  }

  DirectoryConfig config_;
  DaemonFlags daemon_;
};

}  // namespace

std::unique_ptr<Command> NewDirectoryCommand() { return std::make_unique<DirectoryCommand>(); }

}  // namespace phalanx::runtime
