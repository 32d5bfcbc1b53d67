#include "src/client/socket/launch_print.h"

#include <sys/time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <cstring>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "src/common/status_macros.h"
#include "src/common/time/clock.h"

namespace phalanx::internal {
namespace {

// Room for a part and what the kernel counts with it, where the default is less.
constexpr int kSendBufferBytes = 4 * kMaxPrintBytes;

absl::Status SendError(int error) {
  const char* text = std::strerror(error);
  if (error == ECONNREFUSED || error == ENOENT || error == EPIPE) {
    return absl::UnavailableError(absl::StrCat(
        "Print: the launch has ended, or this process does not see its files (", text, ")"));
  }
  if (error == ENOBUFS || error == ENOMEM || error == EMFILE || error == ENFILE) {
    return absl::ResourceExhaustedError(absl::StrCat("Print: ", text));
  }
  return absl::UnavailableError(absl::StrCat("Print: ", text));
}

// The first part of the text: whole lines, if its first line is not too long.
absl::string_view FirstPart(absl::string_view text) {
  if (text.size() <= kMaxPrintBytes) return text;
  const absl::string_view most = text.substr(0, kMaxPrintBytes);
  const size_t end = most.rfind('\n');
  return end == absl::string_view::npos ? most : most.substr(0, end + 1);
}

absl::Status NotRead() {
  return absl::DeadlineExceededError("Print: the launch has not read earlier texts in time");
}

absl::Status SendPart(int fd, const SocketAddress& to, absl::string_view part, Instant until) {
  while (true) {
    // A timeout of zero would be none.
    const absl::Duration left = std::max(until - MonotonicNow(), absl::Milliseconds(1));
    const timeval limit = absl::ToTimeval(std::min(left, absl::Hours(24)));
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
    if (sendto(fd, part.data(), part.size(), MSG_NOSIGNAL,
               reinterpret_cast<const sockaddr*>(&to.address), to.size) >= 0) {
      return absl::OkStatus();
    }
    if (errno == EAGAIN) return NotRead();
    if (errno != EINTR) return SendError(errno);
    // A timer's signals can interrupt every wait.
    if (MonotonicNow() >= until) return NotRead();
  }
}

}  // namespace

absl::StatusOr<SocketAddress> PrintAddress(absl::string_view name) {
  SocketAddress to;
  if (name.empty() || name[0] != '/' || name.size() >= sizeof(to.address.sun_path)) {
    return absl::InvalidArgumentError(absl::StrCat("Print: ", kPrintVariable, " is \"", name,
                                                   "\", not the path of a launch's socket"));
  }
  to.address.sun_family = AF_UNIX;
  // A zero byte ends it.
  name.copy(to.address.sun_path, name.size());
  to.size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + name.size() + 1);
  return to;
}

absl::Status PrintAtLaunch(absl::string_view name, absl::string_view text, absl::Duration timeout) {
  PHALANX_ASSIGN_OR_RETURN(const SocketAddress to, PrintAddress(name));
  const int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return SendError(errno);
  const absl::Cleanup closes = [fd] { close(fd); };
  setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &kSendBufferBytes, sizeof(kSendBufferBytes));
  while (!text.empty()) {
    const absl::string_view part = FirstPart(text);
    // Each part that the launch takes is progress.
    PHALANX_RETURN_IF_ERROR(SendPart(fd, to, part, MonotonicNow() + timeout));
    text.remove_prefix(part.size());
    // The launch ends a part that has no newline with one.
    if (part.back() != '\n') absl::ConsumePrefix(&text, "\n");
  }
  return absl::OkStatus();
}

absl::Status PrintHere(absl::string_view text) {
  const bool ends = absl::EndsWith(text, "\n");
  // Other threads' output does not come between the two.
  flockfile(stdout);
  const bool written = fwrite_unlocked(text.data(), 1, text.size(), stdout) == text.size() &&
                       (ends || putc_unlocked('\n', stdout) != EOF) && fflush_unlocked(stdout) == 0;
  const int error = errno;
  funlockfile(stdout);
  if (written) return absl::OkStatus();
  return absl::UnavailableError(
      absl::StrCat("Print: cannot write to standard output: ", std::strerror(error)));
}

}  // namespace phalanx::internal
