// What `put`, `get` and the like have in common: which node to talk to, which object is meant.
// Main's thread only.
#ifndef PHALANX_RUNTIME_COMMAND_NODE_CONNECTION_H_
#define PHALANX_RUNTIME_COMMAND_NODE_CONNECTION_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "phalanx/client.h"
#include "phalanx/object_id.h"
#include "src/runtime/command/flags.h"

namespace phalanx::runtime {

struct NodeFlags {
  std::string address;
  std::string name_space = "default";
  absl::Duration connect_timeout = absl::Seconds(10);
};
void AddNodeFlags(Flags& flags, NodeFlags* target);

// To the address given, else to this user's default socket. Never a private cluster: what a command
// puts there would be gone with the command. Unavailable when there is no node; the text says what
// to do. Otherwise as Client::Connect.
absl::StatusOr<std::shared_ptr<Client>> ConnectToNode(const NodeFlags& flags);

// An object by its id or by its name within the namespace.
struct ObjectFlags {
  std::string id;
  std::string name;
};
// Exactly one of both. InvalidArgument otherwise, and for what is no id.
absl::StatusOr<ObjectId> ResolveObject(const ObjectFlags& flags, const std::string& name_space);

}  // namespace phalanx::runtime

#endif  // PHALANX_RUNTIME_COMMAND_NODE_CONNECTION_H_
