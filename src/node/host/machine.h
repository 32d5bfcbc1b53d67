// The limits of this machine: memory for the default capacity, signals, the host name. Any thread;
// main calls these functions before it starts other threads.
#ifndef PHALANX_NODE_HOST_MACHINE_H_
#define PHALANX_NODE_HOST_MACHINE_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace phalanx::runtime {

// The share of the available memory that a node takes by default. The rest is for the tasks on the
// machine.
inline constexpr double kDefaultCapacityShare = 0.3;

// The least capacity of a node. The node takes 4 MiB for the first objects below 1 MiB whatever its
// capacity is, and each object takes 1 KiB beside its bytes, so less memory saves nothing and holds
// few objects.
inline constexpr uint64_t kLeastCapacity = 1 << 20;

// Returns InvalidArgument, with the minimum, for a capacity below it.
absl::Status CheckCapacity(uint64_t capacity_bytes);

// Returns the minimum of the memory that the kernel reports as available and, for this process's
// cgroup and each cgroup above it (version 2 or 1), the limit minus the used memory that cannot be
// reclaimed. Reads below `root`, "" for the real files. Returns Unavailable if /proc/meminfo cannot
// be read. A cgroup that cannot be read does not limit the result.
absl::StatusOr<uint64_t> AvailableMemory(absl::string_view root);

// Returns kDefaultCapacityShare of AvailableMemory, in whole MiB, at least 64 MiB. Errors as
// AvailableMemory.
absl::StatusOr<uint64_t> DefaultCapacity(absl::string_view root);

// Returns a warning if AvailableMemory is less than `capacity_bytes`, else "". Objects get memory
// when they are created, so such a node starts and works until the memory is used up.
std::string CapacityWarning(uint64_t capacity_bytes, absl::string_view root);

// Sets the capacity of a node that has none; logs the warning for a capacity that exceeds the
// memory. Errors as DefaultCapacity and CheckCapacity.
absl::Status SettleCapacity(uint64_t* capacity_bytes);

// A broken connection then returns an error from the write instead of a signal.
void IgnoreBrokenPipes();

// Returns "worker-7" for "worker-7.example.org"; "localhost" if the system has no name.
std::string ShortHostName();

}  // namespace phalanx::runtime

#endif  // PHALANX_NODE_HOST_MACHINE_H_
