// Parses the address of a node's socket: "unix:/run/phalanx/node.sock" or a path.
//
// Functions, any thread.
#ifndef PHALANX_CLIENT_CONNECTION_ADDRESS_H_
#define PHALANX_CLIENT_CONNECTION_ADDRESS_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace phalanx::internal {

// Returns the socket's path. InvalidArgument for another scheme, and for a path that is empty or
// does not fit into a socket address (107 bytes); the text names the address.
absl::StatusOr<std::string> SocketPath(absl::string_view address);

}  // namespace phalanx::internal

#endif  // PHALANX_CLIENT_CONNECTION_ADDRESS_H_
