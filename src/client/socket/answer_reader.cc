#include "src/client/socket/answer_reader.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>

#include "src/common/status_macros.h"
#include "src/common/time/clock.h"

namespace phalanx::internal {

AnswerReader::~AnswerReader() {
  // -1 stands for a descriptor that this process had no room for.
  for (const int fd : descriptors_) {
    if (fd >= 0) close(fd);
  }
}

absl::Status AnswerReader::Receive(LocalSocket& socket) {
  PHALANX_ASSIGN_OR_RETURN(const size_t got, socket.Receive(frames_.Space(), descriptors_));
  frames_.Filled(got);
  return absl::OkStatus();
}

absl::StatusOr<std::string> AnswerReader::AwaitFrame(LocalSocket& socket, Instant until) {
  while (true) {
    PHALANX_ASSIGN_OR_RETURN(const std::optional<absl::string_view> payload, Next());
    if (payload.has_value()) return std::string(*payload);
    const absl::Duration left = until - MonotonicNow();
    if (left <= absl::ZeroDuration()) {
      return absl::DeadlineExceededError("the node has not answered in time");
    }
    pollfd ready{socket.fd(), POLLIN, 0};
    // ppoll rejects a timespec of an infinite duration, so each wait is bounded.
    const timespec wait = absl::ToTimespec(std::min(left, absl::Hours(1)));
    if (ppoll(&ready, 1, &wait, nullptr) <= 0) continue;
    PHALANX_RETURN_IF_ERROR(Receive(socket));
  }
}

std::optional<int> AnswerReader::TakeDescriptor() {
  if (descriptors_.empty()) return std::nullopt;
  const int fd = descriptors_.front();
  descriptors_.pop_front();
  return fd;
}

}  // namespace phalanx::internal
