#include "src/client/socket/local_socket.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "src/client/socket/fork_guard.h"

namespace phalanx::internal {
namespace {

absl::Status ConnectError(int error) {
  const char* text = std::strerror(error);
  if (error == EACCES || error == EPERM) return absl::PermissionDeniedError(text);
  // connect() reports the timeout of SO_SNDTIMEO as one of these.
  if (error == EAGAIN || error == EINPROGRESS) {
    return absl::DeadlineExceededError("the node does not accept connections");
  }
  return absl::UnavailableError(error == ENOENT || error == ECONNREFUSED
                                    ? absl::StrCat("no node listens there (", text,
                                                   "): start one, or give the address that a "
                                                   "running one has printed (PHALANX_ADDRESS)")
                                    : text);
}

// Another user could have bound a socket at this path.
absl::Status CheckOwner(int fd) {
  ucred peer{};
  socklen_t length = sizeof(peer);
  if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &length) != 0) {
    return absl::UnavailableError(std::strerror(errno));
  }
  if (peer.uid == geteuid()) return absl::OkStatus();
  return absl::PermissionDeniedError(
      absl::StrCat("the node belongs to user ", peer.uid, ", not to ", geteuid()));
}

}  // namespace

absl::StatusOr<LocalSocket> LocalSocket::Connect(const std::string& path, absl::Duration timeout) {
  LocalSocket made(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (made.fd_ < 0) return absl::ResourceExhaustedError(std::strerror(errno));
  CloseInChildren(made.fd_);
  // A full backlog makes connect() wait; the send timeout bounds the wait.
  const timeval limit =
      absl::ToTimeval(std::clamp(timeout, absl::Milliseconds(1), absl::Hours(24)));
  setsockopt(made.fd_, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  path.copy(address.sun_path, sizeof(address.sun_path) - 1);
  int failed = 0;
  do {
    failed = connect(made.fd_, reinterpret_cast<const sockaddr*>(&address), sizeof(address));
  } while (failed != 0 && errno == EINTR);
  if (failed != 0) return ConnectError(errno);
  const absl::Status owner = CheckOwner(made.fd_);
  if (!owner.ok()) return owner;
  // Non-blocking only now: the send timeout above applies to a blocking connect().
  fcntl(made.fd_, F_SETFL, fcntl(made.fd_, F_GETFL) | O_NONBLOCK);
  return made;
}

LocalSocket& LocalSocket::operator=(LocalSocket&& other) noexcept {
  if (this != &other) {
    Close();
    fd_ = other.fd_;
    other.fd_ = -1;
  }
  return *this;
}

absl::StatusOr<size_t> LocalSocket::Send(absl::Span<const iovec> from) {
  msghdr message{};
  message.msg_iov = const_cast<iovec*>(from.data());
  message.msg_iovlen = from.size();
  while (true) {
    const ssize_t sent = sendmsg(fd_, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sent >= 0) return static_cast<size_t>(sent);
    // No room is not an error. The leader waits until the socket is writable.
    if (errno == EAGAIN || errno == ENOBUFS) return size_t{0};
    if (errno != EINTR) return absl::UnavailableError(std::strerror(errno));
  }
}

absl::StatusOr<size_t> LocalSocket::Receive(absl::Span<char> into, std::deque<int>& descriptors) {
  iovec place{into.data(), into.size()};
  // The node sends one descriptor at a time; there is room for a few more.
  alignas(cmsghdr) char control[CMSG_SPACE(4 * sizeof(int))];
  msghdr message{};
  message.msg_iov = &place;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof(control);
  ssize_t got = 0;
  do {
    got = recvmsg(fd_, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  } while (got < 0 && errno == EINTR);
  if (got < 0 && errno == EAGAIN) return size_t{0};
  if (got < 0) return absl::UnavailableError(std::strerror(errno));
  if (got == 0) return absl::UnavailableError("it closed the connection");
  bool any = false;
  for (cmsghdr* c = CMSG_FIRSTHDR(&message); c != nullptr; c = CMSG_NXTHDR(&message, c)) {
    if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS) continue;
    const size_t count = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (size_t i = 0; i < count; ++i) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(c) + i * sizeof(int), sizeof(int));
      descriptors.push_back(fd);
      any = true;
    }
  }
  // The kernel drops a descriptor that does not fit into this process's table. A -1 keeps the queue
  // aligned with the File frames.
  if ((message.msg_flags & MSG_CTRUNC) != 0 && !any) descriptors.push_back(-1);
  return static_cast<size_t>(got);
}

void LocalSocket::Close() {
  if (fd_ < 0) return;
  KeepInChildren(fd_);
  close(fd_);
  fd_ = -1;
}

}  // namespace phalanx::internal
