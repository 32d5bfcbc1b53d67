// The connection to the directory that `ls`, `describe`, `status` and `top` share.
// Main's thread only.
#ifndef PHALANX_CLI_TOOLS_DIRECTORY_CONNECTION_H_
#define PHALANX_CLI_TOOLS_DIRECTORY_CONNECTION_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "src/cli/flags.h"
#include "src/cli/objects/node_connection.h"
#include "src/directory/grpc/tools_client.h"

namespace phalanx::runtime {

struct DirectoryFlags {
  std::vector<std::string> directory;
  std::string cluster_id = "default";
  std::string secret_file;
  absl::Duration timeout = absl::Seconds(5);
  NodeFlags node;
};
void AddDirectoryFlags(Flags& flags, DirectoryFlags* target);

struct DirectoryConnection {
  // One per shard, in order.
  std::vector<net::Address> shards;
  std::unique_ptr<directory::ToolsClient> tools;
};

// Connects to the given shards, else to the shards of the node. If the node belongs to a private
// cluster, reads the secret from the file beside its socket. Errors as ConnectToNode and
// ReadClusterSecret.
absl::StatusOr<DirectoryConnection> ConnectToDirectory(const DirectoryFlags& flags);
// The same; asks this client of the node for the shards, unless it is null.
absl::StatusOr<DirectoryConnection> ConnectToDirectory(const DirectoryFlags& flags,
                                                       const Client* client);

// The path of the file in which a private cluster keeps its secret, beside its node's socket.
std::string SecretFileBeside(const std::string& socket_address);

}  // namespace phalanx::runtime

#endif  // PHALANX_CLI_TOOLS_DIRECTORY_CONNECTION_H_
