// The private cluster of a process: `phalanx up --embedded-fd=3`. The first client that is made
// without an address starts it, all clients of the process share it, and it ends with the process.
//
// The daemon inherits one end of a socket pair. It writes one line, "READY unix:PATH" or "ERROR
// why", and ends when the other end is closed. The kernel closes that end however this process
// ends; PR_SET_PDEATHSIG would act when the *thread* that forked ends. Children of fork close their
// copy.
//
// Any thread.
#ifndef PHALANX_CLIENT_CONNECTION_EMBEDDED_H_
#define PHALANX_CLIENT_CONNECTION_EMBEDDED_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace phalanx::internal {

// Returns the address of this process's private cluster, and starts the cluster if there is none or
// the daemon has died. Errors: NotFound if there is no executable, with the places searched;
// Unavailable with the daemon's message; DeadlineExceeded. `capacity_bytes` applies only to the
// call that starts the cluster (0: the daemon's default). So does `executable`; if it is empty, the
// candidates are tried. `refused`: the address that was returned before and refused a connection:
// its daemon is ending, and the call waits up to a second for its end.
absl::StatusOr<std::string> EmbeddedAddress(const std::string& executable, uint64_t capacity_bytes,
                                            absl::Duration timeout, absl::string_view refused = "");

// Returns whether this process has a private cluster whose daemon runs.
bool EmbeddedRuns();

// The paths that are searched for the executable, in order: only PHALANX_BINARY if it is set, only
// `executable` if it is not empty, else beside this program, beside this library, in ../bin
// of the library's folder, and along PATH.
std::vector<std::string> ExecutableCandidates(const std::string& executable = "");

}  // namespace phalanx::internal

#endif  // PHALANX_CLIENT_CONNECTION_EMBEDDED_H_
