// The client's end of the Unix socket: bytes in both directions, descriptors inwards. Only Connect
// blocks.
//
// Owned by a connection. Send and Receive can run on two threads at once; Close must run alone.
#ifndef PHALANX_CLIENT_SOCKET_LOCAL_SOCKET_H_
#define PHALANX_CLIENT_SOCKET_LOCAL_SOCKET_H_

#include <sys/uio.h>

#include <cstddef>
#include <deque>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"

namespace phalanx::internal {

class LocalSocket {
 public:
  // Errors: Unavailable (no process listens), PermissionDenied (another user's socket),
  // DeadlineExceeded.
  static absl::StatusOr<LocalSocket> Connect(const std::string& path, absl::Duration timeout);

  LocalSocket() = default;
  LocalSocket(LocalSocket&& other) noexcept : fd_(other.fd_) { other.fd_ = -1; }
  LocalSocket& operator=(LocalSocket&& other) noexcept;
  ~LocalSocket() { Close(); }

  int fd() const { return fd_; }
  // Returns how many bytes were taken, from the first buffers on; 0 if there is no room now.
  // Fails with Unavailable if the peer is gone.
  absl::StatusOr<size_t> Send(absl::Span<const iovec> from);
  // Returns 0 if there is nothing now; Unavailable at the end of the stream. Appends the received
  // descriptors, and -1 for one that this process had no room for.
  absl::StatusOr<size_t> Receive(absl::Span<char> into, std::deque<int>& descriptors);
  // Idempotent.
  void Close();

 private:
  explicit LocalSocket(int fd) : fd_(fd) {}

  int fd_ = -1;
};

}  // namespace phalanx::internal

#endif  // PHALANX_CLIENT_SOCKET_LOCAL_SOCKET_H_
