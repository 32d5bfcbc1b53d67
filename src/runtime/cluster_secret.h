// The secret that members of a cluster show each other. Any thread.
#ifndef PHALANX_RUNTIME_CLUSTER_SECRET_H_
#define PHALANX_RUNTIME_CLUSTER_SECRET_H_

#include <string>

#include "absl/status/statusor.h"

namespace phalanx::runtime {

inline constexpr size_t kMaxSecretBytes = 4096;

// The content of `file` without the white space around it; without a file the environment's
// PHALANX_SECRET; without that, no secret (""). There is no flag for the secret itself: everybody
// could read it in the list of processes. NotFound or PermissionDenied for a file that cannot be
// read, InvalidArgument for one that is empty or longer than kMaxSecretBytes.
absl::StatusOr<std::string> ReadClusterSecret(const std::string& file);

// A new one for a private cluster: 256 random bits as text.
std::string NewClusterSecret();

}  // namespace phalanx::runtime

#endif  // PHALANX_RUNTIME_CLUSTER_SECRET_H_
