// What this machine and its limits allow: memory for the default capacity, signals, a name.
// Any thread; called by main while there is only one.
#ifndef PHALANX_RUNTIME_MACHINE_H_
#define PHALANX_RUNTIME_MACHINE_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace phalanx::runtime {

// The share of the memory that may be had which a node takes unless told otherwise. The rest is for
// the tasks, whose memory it is.
inline constexpr double kDefaultCapacityShare = 0.3;

// The least of: what the kernel says is available, and for this process' cgroup and each one above
// it (version 2 or 1) the limit less what is in use that cannot be reclaimed. Reads below `root`,
// "" for the real files. Unavailable when /proc/meminfo cannot be read; cgroups that cannot be read
// do not limit.
absl::StatusOr<uint64_t> AvailableMemory(absl::string_view root);

// kDefaultCapacityShare of AvailableMemory, in whole MiB, at least 64 MiB. Errors as
// AvailableMemory.
absl::StatusOr<uint64_t> DefaultCapacity(absl::string_view root);

// What to tell whoever asks for `capacity_bytes`: nothing when AvailableMemory has them. Objects
// are given memory as they come, so that such a node starts, and works as long as there is some.
std::string CapacityWarning(uint64_t capacity_bytes, absl::string_view root);

// Sets what a node without a capacity takes; warns in the log of one that is not there. Errors as
// DefaultCapacity.
absl::Status SettleCapacity(uint64_t* capacity_bytes);

// A broken connection is a Status where it is written to, not a signal.
void IgnoreBrokenPipes();

// "worker-7" of "worker-7.example.org"; "localhost" when the system does not say.
std::string ShortHostName();

}  // namespace phalanx::runtime

#endif  // PHALANX_RUNTIME_MACHINE_H_
