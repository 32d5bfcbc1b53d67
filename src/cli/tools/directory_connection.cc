#include "src/cli/tools/directory_connection.h"

#include <unistd.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "src/common/status_macros.h"
#include "src/node/host/cluster_secret.h"

namespace phalanx::runtime {

void AddDirectoryFlags(Flags& flags, DirectoryFlags* target) {
  flags.Group("Directory");
  flags.Setting("--directory", "The shards' addresses in order; by default those of the node",
                TextList(&target->directory, "HOST:PORT,..."));
  flags.Setting("--cluster-id", "Name of the cluster", Text(&target->cluster_id, "NAME"));
  flags.Setting("--secret-file",
                "A file with the cluster's secret; without it $PHALANX_SECRET is the secret",
                Text(&target->secret_file, "FILE"));
  flags.Setting("--directory-timeout", "Timeout of one request", TimeSpan(&target->timeout));
  AddNodeFlags(flags, &target->node);
}

// `up` writes it there; see up_command.cc.
std::string SecretFileBeside(const std::string& socket_address) {
  const absl::string_view path = absl::StripPrefix(socket_address, "unix:");
  const size_t slash = path.rfind('/');
  if (slash == absl::string_view::npos) return "secret";
  return absl::StrCat(path.substr(0, slash), "/secret");
}

absl::StatusOr<DirectoryConnection> ConnectToDirectory(const DirectoryFlags& flags) {
  return ConnectToDirectory(flags, nullptr);
}

absl::StatusOr<DirectoryConnection> ConnectToDirectory(const DirectoryFlags& flags,
                                                       const Client* client) {
  directory::ToolsClientOptions options;
  options.cluster_id = flags.cluster_id;
  options.timeout = flags.timeout;
  PHALANX_ASSIGN_OR_RETURN(options.secret, ReadClusterSecret(flags.secret_file));
  DirectoryConnection connection;
  connection.shards = flags.directory;
  // The node knows its shards, so on a node's host no flag is needed.
  if (connection.shards.empty()) {
    std::shared_ptr<Client> own;
    if (client == nullptr) {
      PHALANX_ASSIGN_OR_RETURN(own, ConnectToNode(flags.node));
      client = own.get();
    }
    // In the order of the shards, as the node was configured.
    connection.shards = absl::StrSplit(client->directory(), ',', absl::SkipEmpty());
    if (connection.shards.empty()) {
      return absl::UnavailableError(
          absl::StrCat("node ", client->node_name(), " does not report its directory's addresses"));
    }
    const std::string beside = SecretFileBeside(client->address());
    // A given secret wins. Only the owner can read the file, so an unreadable file is another
    // user's cluster.
    if (options.secret.empty() && access(beside.c_str(), R_OK) == 0) {
      PHALANX_ASSIGN_OR_RETURN(options.secret, ReadClusterSecret(beside));
    }
  }
  connection.tools =
      std::make_unique<directory::ToolsClient>(connection.shards, std::move(options));
  return connection;
}

}  // namespace phalanx::runtime
