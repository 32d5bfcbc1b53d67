#include "src/cli/launch/output_queue.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "src/common/status_macros.h"

namespace phalanx::runtime {
namespace {

// Opens a pipe or a terminal once more, as a file description that no other process has. Returns -1
// if the system refuses, or `fd` is neither.
int OpenAgain(int fd) {
  struct stat file;
  const bool pipe = fstat(fd, &file) == 0 && S_ISFIFO(file.st_mode);
  // The master of a pseudo-terminal would open as another one.
  unsigned int number;
  const bool terminal = isatty(fd) != 0 && ioctl(fd, TIOCGPTN, &number) != 0;
  if (!pipe && !terminal) return -1;
  const std::string path = absl::StrCat("/proc/self/fd/", fd);
  return open(path.c_str(), O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
}

}  // namespace

OutputQueue::OutputQueue(int fd, Events events)
    : own_(OpenAgain(fd)), fd_(own_.valid() ? own_.get() : fd), events_(std::move(events)) {}

absl::StatusOr<std::unique_ptr<OutputQueue>> OutputQueue::Open(net::EventLoop& loop, int fd,
                                                               Events events) {
  auto queue = std::unique_ptr<OutputQueue>(new OutputQueue(fd, std::move(events)));
  PHALANX_RETURN_IF_ERROR(queue->WatchRoom(loop));
  return queue;
}

absl::Status OutputQueue::WatchRoom(net::EventLoop& loop) {
  epoll_ = net::UniqueFd(epoll_create1(EPOLL_CLOEXEC));
  epoll_event writable = {};
  writable.events = EPOLLOUT;
  if (epoll_.valid() && epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd_, &writable) == 0) {
    PHALANX_ASSIGN_OR_RETURN(watcher_, loop.Watch(epoll_.get()));
    return absl::OkStatus();
  }
  // A file or /dev/null.
  if (epoll_.valid() && errno == EPERM) return absl::OkStatus();
  return absl::UnavailableError(absl::StrCat("cannot watch the output: ", strerror(errno)));
}

void OutputQueue::Append(const std::function<void(std::string*)>& add) {
  const bool idle = empty();
  const size_t before = waiting_.size();
  add(&waiting_);
  if (waiting_.size() > before) at_line_start_ = waiting_.back() == '\n';
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
    return;
  }
  // Not at less than half: then it moves each byte once.
  if (written_ >= kFullBytes && written_ >= waiting_.size() / 2) {
    waiting_.erase(0, written_);
    written_ = 0;
  }
  watcher_->OnReadable([this] { OnRoom(); });
}

// Returns whether there can be room for more.
bool OutputQueue::WriteOnce() {
  pollfd room = {fd_, POLLOUT, 0};
  if (!own_.valid() && watcher_ != nullptr && poll(&room, 1, 0) == 0) return false;
  // A pipe with room takes PIPE_BUF bytes at once, and no other writer comes between them. They end
  // with a line, so that lines of another process do not come into the middle of one.
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
  // There is no room, or another process has made the shared descriptor non-blocking.
  if (errno == EAGAIN && watcher_ != nullptr) return false;
  broken_ = true;
  events_.on_error(errno);
  return false;
}

}  // namespace phalanx::runtime
