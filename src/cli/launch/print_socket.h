// The launch's end of what tasks print at it (`Membership::Print`): a Unix socket, whose path the
// tasks have in PHALANX_PRINT.
//
// A datagram is a part of a text, and stays in the socket when its sender ends. When the socket is
// full (net.unix.max_dgram_qlen), senders wait. So that no other user of the host can fill it, it
// is in a folder of this user alone. The kernel names the sender of each datagram, since root can
// send to it, too.
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
#include "src/node/host/paths.h"

namespace phalanx::runtime {

class PrintSocket {
 public:
  // In a new folder, which is removed at the end. Returns Unavailable if the system refuses.
  static absl::StatusOr<std::unique_ptr<PrintSocket>> Open();

  // The value of PHALANX_PRINT.
  const std::string& path() const { return path_; }
  // Readable while datagrams wait.
  int fd() const { return fd_.get(); }
  // So many datagrams can wait at a time.
  int most_waiting() const { return most_waiting_; }
  // Takes the next datagram and returns its text, valid until the next call; nothing if none waits.
  // The text of a process of another user is empty.
  std::optional<absl::string_view> Take();
  // From now on senders get an error. What waits can still be taken.
  void Refuse();
  // The user whose texts were dropped, the first one.
  std::optional<uid_t> stranger() const { return stranger_; }

 private:
  PrintSocket(TemporaryFolder folder, std::string path, net::UniqueFd fd, int most_waiting)
      : folder_(std::move(folder)),
        path_(std::move(path)),
        fd_(std::move(fd)),
        most_waiting_(most_waiting) {}

  const TemporaryFolder folder_;
  const std::string path_;
  const net::UniqueFd fd_;
  const int most_waiting_;
  std::string text_;
  std::optional<uid_t> stranger_;
};

}  // namespace phalanx::runtime

#endif  // PHALANX_CLI_LAUNCH_PRINT_SOCKET_H_
