// The connection to a node that `put`, `get` and similar commands share. Main's thread only.
#ifndef PHALANX_CLI_OBJECTS_NODE_CONNECTION_H_
#define PHALANX_CLI_OBJECTS_NODE_CONNECTION_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "phalanx/client.h"
#include "src/cli/flags.h"

namespace phalanx::runtime {

struct NodeFlags {
  std::string address;
  std::string name_space = "default";
  absl::Duration connect_timeout = absl::Seconds(10);
};
void AddNodeFlags(Flags& flags, NodeFlags* target);

// Connects to the given address, else to this user's default socket. Does not start a private
// cluster, because objects put there would end with the command. Returns Unavailable, with the
// remedy, if no node runs; otherwise as Client::Connect.
absl::StatusOr<std::shared_ptr<Client>> ConnectToNode(const NodeFlags& flags);

}  // namespace phalanx::runtime

#endif  // PHALANX_CLI_OBJECTS_NODE_CONNECTION_H_
