#include "src/cli/daemons/up_command.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <iostream>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "src/cli/daemons/daemon_flags.h"
#include "src/cli/daemons/daemon_loop.h"
#include "src/common/io/log.h"
#include "src/common/status_macros.h"
#include "src/net/tcp/tcp_network.h"
#include "src/node/directory_daemon.h"
#include "src/node/host/cluster_secret.h"
#include "src/node/host/machine.h"
#include "src/node/host/paths.h"
#include "src/node/node_daemon.h"

namespace phalanx::runtime {
namespace {

// Writes the whole line, or returns false and leaves the error in errno.
bool WriteLine(int fd, std::string line) {
  line.push_back('\n');
  absl::string_view left = line;
  while (!left.empty()) {
    const ssize_t written = write(fd, left.data(), left.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return false;
    left.remove_prefix(static_cast<size_t>(written));
  }
  return true;
}

// Tools on this host read the secret of the private cluster from this file.
absl::Status WriteSecretFile(const std::string& path, const std::string& secret) {
  // O_EXCL: the folder is new, so no other process can own a file here.
  const int fd = open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (fd < 0)
    return absl::UnavailableError(absl::StrCat("cannot create ", path, ": ", strerror(errno)));
  // The tools could not use a cluster whose secret is cut off.
  absl::Status status;
  if (!WriteLine(fd, secret)) {
    status = absl::ResourceExhaustedError(
        absl::StrCat("cannot write ", path, ": ", strerror(errno),
                     ": make room, or set XDG_RUNTIME_DIR to a folder that has some"));
  }
  close(fd);
  return status;
}

class UpCommand : public Command {
 public:
  absl::string_view name() const override { return "up"; }
  absl::string_view summary() const override {
    return "Run a private directory and node in one process";
  }
  absl::string_view details() const override {
    return "For one machine, and for programs that start their own cluster. Ends on SIGTERM, with "
           "its\n"
           "terminal or, with --embedded-fd, when the other end of that descriptor is closed.";
  }

  bool output_is_result() const override { return false; }

  void AddFlags(Flags& flags) override {
    flags.Argument("--embedded-fd",
                   "Write READY or ERROR to this descriptor, and end at its end of file",
                   Integer(&embedded_fd_, 0, 1 << 20));
    AddNodeMemoryFlags(flags, &node_);
    AddNodeTransferFlags(flags, &node_);
    AddShardFlags(flags, &directory_);
    flags.Group("Log");
    flags.Setting("--log-level", "The lowest level that is logged",
                  Choice(&daemon_.log.level, {"debug", "info", "warning", "error", "off"}));
    flags.Setting("--log-file", "Append the log to this file instead of standard error",
                  Text(&daemon_.log.file, "FILE"));
    flags.Argument("--json", "Print the cluster's addresses as JSON", Switch(&daemon_.json));
  }

  absl::Status Run() override {
    const absl::Status status = Serve();
    if (!status.ok() && embedded_fd_ >= 0 && !ready_) {
      // The contract is one line.
      const std::string text = absl::StrReplaceAll(status.message(), {{"\n", " "}});
      WriteLine(embedded_fd_, absl::StrCat("ERROR ", text));
    }
    return status;
  }

 private:
  absl::Status Serve() {
    // A program's private cluster logs only errors and warnings.
    if (embedded_fd_ >= 0 && daemon_.log.level == "info") daemon_.log.level = "warning";
    PHALANX_RETURN_IF_ERROR(PrepareDaemon(daemon_));
    PHALANX_ASSIGN_OR_RETURN(const TemporaryFolder folder, TemporaryFolder::Make());
    PHALANX_RETURN_IF_ERROR(Configure(folder.path()));
    // A program can outlive its terminal, and its private cluster with it.
    DaemonLoop process(daemon_.log.file, embedded_fd_ >= 0 ? DaemonLoop::OnHangup::kReopenLog
                                                           : DaemonLoop::OnHangup::kLeave);
    net::TcpNetwork network;
    PHALANX_ASSIGN_OR_RETURN(const std::unique_ptr<DirectoryDaemon> directory,
                             DirectoryDaemon::Start(directory_, process.loop(), network));
    // Clients report this address to tools, although the node itself does not dial it.
    node_.directories = {directory->address()};
    node_.local_directory = &directory->local_door();
    PHALANX_ASSIGN_OR_RETURN(const std::unique_ptr<NodeDaemon> node,
                             NodeDaemon::Start(node_, process.loop()));
    if (embedded_fd_ >= 0) {
      // The descriptor was inherited without FD_CLOEXEC; processes started from here must not keep
      // it open.
      fcntl(embedded_fd_, F_SETFD, FD_CLOEXEC);
      PHALANX_RETURN_IF_ERROR(process.StopAtEndOfFile(embedded_fd_));
    }
    Announce(*node, folder.path());
    // There is no other node that could fetch copies, so the cluster leaves at once.
    return process.Run([](const std::function<void()>& gone) { gone(); });
  }

  absl::Status Configure(const std::string& folder) {
    const std::string secret = NewClusterSecret();
    PHALANX_RETURN_IF_ERROR(WriteSecretFile(absl::StrCat(folder, "/secret"), secret));
    // Tools need a port; the node itself uses the local door.
    directory_.listen = "127.0.0.1:0";
    directory_.secret = secret;
    // No node has had this secret before, so there is nothing to recover.
    directory_.core.first_life = true;
    node_.node.name = absl::StrCat(ShortHostName(), "-", getpid());
    node_.node.secret = secret;
    node_.node.process_id = static_cast<uint64_t>(getpid());
    node_.socket = absl::StrCat(folder, "/node.sock");
    PHALANX_RETURN_IF_ERROR(SettleCapacity(&node_.node.capacity_bytes));
    return absl::OkStatus();
  }

  void Announce(const NodeDaemon& node, const std::string& folder) {
    // After READY the parent reads no more lines, so later errors go to the log only.
    ready_ = true;
    if (embedded_fd_ >= 0) {
      WriteLine(embedded_fd_, absl::StrCat("READY ", node.client_address()));
    } else if (daemon_.json) {
      std::cout << nlohmann::json{{"role", "up"},
                                  {"socket", node.client_address()},
                                  {"directory", node_.directories[0]},
                                  {"secret_file", absl::StrCat(folder, "/secret")},
                                  {"process_id", getpid()}}
                << std::endl;
    } else {
      std::cout << "A private cluster is up. In another terminal:\n\n  export PHALANX_ADDRESS="
                << node.client_address()
                << "\n  phalanx put FILE      # prints an id\n  phalanx get ID -o COPY\n"
                   "  phalanx status\n\nCtrl-C ends the cluster and its objects."
                << std::endl;
    }
  }

  int embedded_fd_ = -1;
  bool ready_ = false;
  DirectoryConfig directory_;
  NodeConfig node_;
  DaemonFlags daemon_;
};

}  // namespace

std::unique_ptr<Command> NewUpCommand() { return std::make_unique<UpCommand>(); }

}  // namespace phalanx::runtime
