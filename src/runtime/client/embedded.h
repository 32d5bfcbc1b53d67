// The private cluster of a process: `phalanx up --embedded-fd=3`, started when a client is made
// without an address, shared by all clients of the process, gone when the process is.
//
// The daemon inherits one end of a socket pair, writes one line to it, "READY unix:PATH" or
// "ERROR why", and ends when the other end is closed: by the kernel, however this process ends.
// PR_SET_PDEATHSIG would do so when the *thread* that forked ends. Children of fork close their
// copy.
//
// Any thread.
#ifndef PHALANX_RUNTIME_CLIENT_EMBEDDED_H_
#define PHALANX_RUNTIME_CLIENT_EMBEDDED_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace phalanx::internal {

// The address of this process's private cluster, which is started if there is none or it has died.
// NotFound when there is no executable, naming where it was looked for; Unavailable with what the
// daemon said; DeadlineExceeded. `capacity_bytes` counts for the one that starts it; 0: its
// default. So does `executable`; if it is empty the candidates are tried.
absl::StatusOr<std::string> EmbeddedAddress(const std::string& executable, uint64_t capacity_bytes,
                                            absl::Duration timeout);

// Where the executable is looked for, in order: PHALANX_BINARY alone if it is set, `executable`
// alone if it is not empty, else beside this program, beside this library, and along PATH.
std::vector<std::string> ExecutableCandidates(const std::string& executable = "");

}  // namespace phalanx::internal

#endif  // PHALANX_RUNTIME_CLIENT_EMBEDDED_H_
