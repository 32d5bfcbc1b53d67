// RaiseFileDescriptorLimit: lets the process use as many descriptors as the system grants it.
#ifndef PHALANX_NET_FILE_DESCRIPTOR_LIMIT_H_
#define PHALANX_NET_FILE_DESCRIPTOR_LIMIT_H_

#include <cstdint>

#include "absl/status/statusor.h"

namespace phalanx::net {

// Raises RLIMIT_NOFILE to its hard limit and returns the limit that now holds. Unavailable when the
// system refuses; the limit is then as it was. Called by `main` before it opens anything.
absl::StatusOr<uint64_t> RaiseFileDescriptorLimit();

}  // namespace phalanx::net

#endif  // PHALANX_NET_FILE_DESCRIPTOR_LIMIT_H_
