#include "src/cli/objects/node_connection.h"

#include <unistd.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "src/node/host/paths.h"

namespace phalanx::runtime {

void AddNodeFlags(Flags& flags, NodeFlags* target) {
  flags.Group("Node");
  flags.Setting("--address",
                "The node's socket, unix:/path or a path; by default this user's socket",
                Text(&target->address, "ADDRESS"));
  flags.Setting("--namespace", "Namespace of names", Text(&target->name_space, "NAME"));
  flags.Setting("--connect-timeout", "How long to try to reach the node",
                TimeSpan(&target->connect_timeout));
}

absl::StatusOr<std::shared_ptr<Client>> ConnectToNode(const NodeFlags& flags) {
  ClientOptions options;
  options.address = flags.address;
  options.name_space = flags.name_space;
  options.connect_timeout = flags.connect_timeout;
  if (options.address.empty()) {
    const std::string path = DefaultSocketPath();
    // Checked here for a better message: without an address Connect would start a private cluster.
    if (access(path.c_str(), F_OK) != 0) {
      return absl::UnavailableError(absl::StrCat(
          "no node is running at ", path,
          ": start one there with `phalanx directory & phalanx node`, or set --address "
          "or PHALANX_ADDRESS to the address of another, as `phalanx up` prints it"));
    }
    options.address = absl::StrCat("unix:", path);
  }
  return Client::Connect(std::move(options));
}

}  // namespace phalanx::runtime
