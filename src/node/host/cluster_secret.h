// The secret that members of a cluster use to authenticate each other. Any thread.
#ifndef PHALANX_NODE_HOST_CLUSTER_SECRET_H_
#define PHALANX_NODE_HOST_CLUSTER_SECRET_H_

#include <string>

#include "absl/status/statusor.h"

namespace phalanx::runtime {

inline constexpr size_t kMaxSecretBytes = 4096;

// Returns the content of `file` without surrounding white space; if `file` is empty, the
// environment's PHALANX_SECRET; if that is unset too, "" (no secret). There is no flag for the
// secret itself, because every user can read flags in the process list. Errors: NotFound or
// PermissionDenied for a file that cannot be read, InvalidArgument for a file that is empty, longer
// than kMaxSecretBytes, or no regular file. Never blocks for a pipe.
absl::StatusOr<std::string> ReadClusterSecret(const std::string& file);

// Returns a new secret for a private cluster: 256 random bits as text.
std::string NewClusterSecret();

}  // namespace phalanx::runtime

#endif  // PHALANX_NODE_HOST_CLUSTER_SECRET_H_
