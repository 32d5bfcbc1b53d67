#include "src/cli/launch/print_socket.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <fstream>

#include "absl/strings/str_cat.h"
#include "src/client/socket/launch_print.h"
#include "src/common/status_macros.h"

namespace phalanx::runtime {
namespace {

// Assumed if the system does not say, or says more.
constexpr int kUnknownLimit = 1 << 16;

absl::Status Refused(int error) {
  return absl::UnavailableError(
      absl::StrCat("cannot open a socket for what tasks print: ", strerror(error)));
}

// The system's limit when the socket is made. The queue can be one longer.
int MostWaiting() {
  int limit = 0;
  std::ifstream file("/proc/sys/net/unix/max_dgram_qlen");
  return file >> limit && limit > 0 && limit < kUnknownLimit ? limit + 1 : kUnknownLimit;
}

// The user of the process that has sent the message, as the kernel has attached it.
std::optional<uid_t> SenderOf(msghdr& message) {
  for (cmsghdr* c = CMSG_FIRSTHDR(&message); c != nullptr; c = CMSG_NXTHDR(&message, c)) {
    if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_CREDENTIALS) continue;
    ucred sender = {};
    memcpy(&sender, CMSG_DATA(c), sizeof(sender));
    return sender.uid;
  }
  return std::nullopt;
}

}  // namespace

absl::StatusOr<std::unique_ptr<PrintSocket>> PrintSocket::Open() {
  PHALANX_ASSIGN_OR_RETURN(TemporaryFolder folder, TemporaryFolder::Make());
  std::string path = absl::StrCat(folder.path(), "/print");
  PHALANX_ASSIGN_OR_RETURN(const internal::SocketAddress at, internal::PrintAddress(path));
  net::UniqueFd fd(socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd.valid()) return Refused(errno);
  // Before the path can be used.
  const int credentials = 1;
  if (setsockopt(fd.get(), SOL_SOCKET, SO_PASSCRED, &credentials, sizeof(credentials)) != 0 ||
      bind(fd.get(), reinterpret_cast<const sockaddr*>(&at.address), at.size) != 0) {
    return Refused(errno);
  }
  return std::unique_ptr<PrintSocket>(
      new PrintSocket(std::move(folder), std::move(path), std::move(fd), MostWaiting()));
}

std::optional<absl::string_view> PrintSocket::Take() {
  text_.resize(internal::kMaxPrintBytes);
  iovec place = {text_.data(), text_.size()};
  // Descriptors that a datagram carries find no room behind the sender, and are closed.
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(ucred))];
  msghdr message = {};
  message.msg_iov = &place;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof(control);
  ssize_t size;
  do {
    size = recvmsg(fd_.get(), &message, MSG_CMSG_CLOEXEC);
  } while (size < 0 && errno == EINTR);
  if (size < 0) return std::nullopt;
  const std::optional<uid_t> sender = SenderOf(message);
  // The real user: a program that changes only its effective one is still this user's.
  if (sender == getuid()) return absl::string_view(text_.data(), static_cast<size_t>(size));
  if (!stranger_ && sender) stranger_ = sender;
  return absl::string_view();
}

void PrintSocket::Refuse() { shutdown(fd_.get(), SHUT_RD); }

}  // namespace phalanx::runtime
