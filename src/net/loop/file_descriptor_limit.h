// RaiseFileDescriptorLimit: raises the number of descriptors that the process can open.
#ifndef PHALANX_NET_LOOP_FILE_DESCRIPTOR_LIMIT_H_
#define PHALANX_NET_LOOP_FILE_DESCRIPTOR_LIMIT_H_

#include <cstdint>

#include "absl/status/statusor.h"

namespace phalanx::net {

// Raises RLIMIT_NOFILE to its hard limit and returns the new limit. Returns Unavailable if the
// system refuses; the limit is then unchanged. `main` calls it before it opens any descriptor.
absl::StatusOr<uint64_t> RaiseFileDescriptorLimit();

}  // namespace phalanx::net

#endif  // PHALANX_NET_LOOP_FILE_DESCRIPTOR_LIMIT_H_
