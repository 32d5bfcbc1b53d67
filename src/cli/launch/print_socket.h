// The launch's end of what tasks print at it (`Membership::Print`): a Unix socket in the abstract
// namespace, whose name the tasks have in PHALANX_PRINT.
//
// A datagram is a part of a text, and stays in the socket when its sender ends. When the socket is
// full (net.unix.max_dgram_qlen), senders wait. Any user of the host can send to it, so the kernel
// names the sender of each datagram.
//
// Owned by the Launcher; one thread.
#ifndef PHALANX_CLI_LAUNCH_PRINT_SOCKET_H_
#define PHALANX_CLI_LAUNCH_PRINT_SOCKET_H_

#include <sys/types.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "src/net/tcp/unique_fd.h"

namespace phalanx::runtime {

class PrintSocket {
 public:
  // With a random name. Returns Unavailable if the system refuses.
  static absl::StatusOr<std::unique_ptr<PrintSocket>> Open();

  // The value of PHALANX_PRINT.
  const std::string& name() const { return name_; }
  // Readable while datagrams wait.
  int fd() const { return fd_.get(); }
  // So many datagrams can wait at a time.
  int most_waiting() const { return most_waiting_; }
  // Takes the next datagram and returns its text, valid until the next call; nothing if none waits.
  // The text of a process of another user is empty.
  std::optional<absl::string_view> Take();
  // The user whose texts were dropped, the first one.
  std::optional<uid_t> stranger() const { return stranger_; }

 private:
  PrintSocket(net::UniqueFd fd, std::string name, int most_waiting)
      : fd_(std::move(fd)), name_(std::move(name)), most_waiting_(most_waiting) {}

  const net::UniqueFd fd_;
  const std::string name_;
  const int most_waiting_;
  std::string text_;
  std::optional<uid_t> stranger_;
};

}  // namespace phalanx::runtime

#endif  // PHALANX_CLI_LAUNCH_PRINT_SOCKET_H_
