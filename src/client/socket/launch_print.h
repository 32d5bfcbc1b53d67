// Texts of a task for the standard output of the `phalanx launch` that has started it.
//
//   PrintAtLaunch ──datagrams──► the launch's socket ──► its standard output
//
// The path of the socket is in a variable. So the processes that a task has started reach it, too,
// whichever shell or program stands between. Its folder is closed to other users; the kernel says
// to the launch which user has sent a datagram, and it drops those of root.
//
// Functions; any thread.
#ifndef PHALANX_CLIENT_SOCKET_LAUNCH_PRINT_H_
#define PHALANX_CLIENT_SOCKET_LAUNCH_PRINT_H_

#include <sys/socket.h>
#include <sys/un.h>

#include <cstddef>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace phalanx::internal {

// Has the path of the socket.
inline constexpr char kPrintVariable[] = "PHALANX_PRINT";
// Of one datagram. Longer texts are sent in parts.
inline constexpr size_t kMaxPrintBytes = 64 << 10;

struct SocketAddress {
  sockaddr_un address = {};
  socklen_t size = 0;
};

// The address of an absolute path. InvalidArgument if it is none, or too long.
absl::StatusOr<SocketAddress> PrintAddress(absl::string_view name);

// Sends the text in parts of whole lines; a line of more than kMaxPrintBytes is cut. Texts of other
// tasks can come between the parts. Returns when the launch's socket has the last one: it is then
// printed also if this process ends. Waits while the launch does not read, as it does when the
// reader of its output is slow; `timeout` is that for each part. Errors:
//     Unavailable         the launch has ended, or this process does not see its files, or may not
//     DeadlineExceeded    it has not read in time; it can have the first parts
//     InvalidArgument     no such path
//     ResourceExhausted   no descriptor or memory
absl::Status PrintAtLaunch(absl::string_view name, absl::string_view text, absl::Duration timeout);

// Writes the text to this process's standard output, and flushes that. Adds a newline if the text
// has none at its end, as the launch does. Unavailable if it cannot be written.
absl::Status PrintHere(absl::string_view text);

}  // namespace phalanx::internal

#endif  // PHALANX_CLIENT_SOCKET_LAUNCH_PRINT_H_
