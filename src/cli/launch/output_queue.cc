#include "src/cli/launch/output_queue.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "src/common/status_macros.h"

namespace phalanx::runtime {

absl::StatusOr<std::unique_ptr<OutputQueue>> OutputQueue::Open(net::EventLoop& loop, int fd,
                                                               Events events) {
  auto queue = std::unique_ptr<OutputQueue>(new OutputQueue(fd, std::move(events)));
  PHALANX_RETURN_IF_ERROR(queue->WatchRoom(loop));
  return queue;
}

OutputQueue::~OutputQueue() {
  watcher_.reset();
  if (epoll_ >= 0) close(epoll_);
}

absl::Status OutputQueue::WatchRoom(net::EventLoop& loop) {
  epoll_ = epoll_create1(EPOLL_CLOEXEC);
  epoll_event writable = {};
  writable.events = EPOLLOUT;
  if (epoll_ >= 0 && epoll_ctl(epoll_, EPOLL_CTL_ADD, fd_, &writable) == 0) {
    PHALANX_ASSIGN_OR_RETURN(watcher_, loop.Watch(epoll_));
    return absl::OkStatus();
  }
  // A file or /dev/null.
  if (epoll_ >= 0 && errno == EPERM) return absl::OkStatus();
  return absl::UnavailableError(absl::StrCat("cannot watch the output: ", strerror(errno)));
}

void OutputQueue::Append(const std::function<void(std::string*)>& add) {
  const bool idle = empty();
  add(&waiting_);
  // Otherwise the queue waits for room already.
  if (idle) Write();
}

void OutputQueue::OnRoom() {
  const bool was_full = full();
  Write();
  if ((was_full && !full()) || empty()) events_.on_room();
}

void OutputQueue::Write() {
  while (!empty() && !broken_ && WriteOnce()) {
  }
  if (broken_ || empty()) {
    waiting_.clear();
    written_ = 0;
  } else {
    watcher_->OnReadable([this] { OnRoom(); });
  }
}

// Returns whether there can be room for more.
bool OutputQueue::WriteOnce() {
  pollfd room = {fd_, POLLOUT, 0};
  const int ready = poll(&room, 1, 0);
  if (ready == 0 && watcher_ != nullptr) return false;
  // A pipe with room takes PIPE_BUF bytes without blocking, and no other writer comes between them.
  // They end with a line, so that lines of another process do not come into the middle of one.
  absl::string_view bytes = absl::string_view(waiting_).substr(written_, PIPE_BUF);
  if (const size_t end = bytes.rfind('\n'); end != absl::string_view::npos) {
    bytes = bytes.substr(0, end + 1);
  }
  const ssize_t size = write(fd_, bytes.data(), bytes.size());
  if (size >= 0) {
    written_ += static_cast<size_t>(size);
    return true;
  }
  if (errno == EINTR) return true;
  // Another process has made the descriptor non-blocking.
  if (errno == EAGAIN && watcher_ != nullptr) return false;
  broken_ = true;
  events_.on_error(errno);
  return false;
}

}  // namespace phalanx::runtime
