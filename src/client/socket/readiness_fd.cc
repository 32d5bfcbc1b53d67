#include "src/client/socket/readiness_fd.h"

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <cstdint>

#include "src/client/socket/fork_guard.h"

namespace phalanx::internal {
namespace {

void CloseAll(std::initializer_list<int*> fds) {
  for (int* fd : fds) {
    if (*fd >= 0) {
      KeepInChildren(*fd);
      close(*fd);
    }
    *fd = -1;
  }
}

// Level-triggered: the descriptor stays readable until the connection has handled the event.
bool AddForReading(int epoll, int fd) {
  epoll_event event{};
  event.events = EPOLLIN;
  return epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event) == 0;
}

}  // namespace

ReadinessFd::~ReadinessFd() { CloseAll({&epoll_, &event_, &timer_}); }

int ReadinessFd::fd() {
  if (epoll_ >= 0) return epoll_;
  // All three descriptors or none: a partial set would miss deadlines or callbacks without an
  // error.
  epoll_ = epoll_create1(EPOLL_CLOEXEC);
  event_ = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  timer_ = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
  if (epoll_ < 0 || event_ < 0 || timer_ < 0 || !AddForReading(epoll_, event_) ||
      !AddForReading(epoll_, timer_)) {
    CloseAll({&epoll_, &event_, &timer_});
    return -1;
  }
  for (const int fd : {epoll_, event_, timer_}) CloseInChildren(fd);
  current_ = Interest();
  return epoll_;
}

void ReadinessFd::Watch(const Interest& interest) {
  // Every unlock of the connection calls Watch, so the common case must not cost a system call.
  if (interest == current_) return;
  if (interest.socket != current_.socket || interest.write != current_.write) WatchSocket(interest);
  if (interest.callbacks != current_.callbacks) {
    uint64_t count = 1;
    [[maybe_unused]] const ssize_t done = interest.callbacks ? write(event_, &count, sizeof(count))
                                                             : read(event_, &count, sizeof(count));
  }
  if (interest.deadline != current_.deadline) {
    itimerspec spec{};
    if (!interest.deadline.infinite()) {
      // Instants count from the start of CLOCK_MONOTONIC. A timer set to 0 would be disarmed.
      const int64_t nanos = interest.deadline.nanos() > 0 ? interest.deadline.nanos() : 1;
      spec.it_value = {nanos / 1000000000, nanos % 1000000000};
    }
    timerfd_settime(timer_, TFD_TIMER_ABSTIME, &spec, nullptr);
  }
  current_ = interest;
}

void ReadinessFd::WatchSocket(const Interest& interest) {
  // A closed descriptor number can be reused at once, so the old socket leaves the set explicitly.
  if (current_.socket >= 0 && interest.socket != current_.socket) {
    epoll_ctl(epoll_, EPOLL_CTL_DEL, current_.socket, nullptr);
  }
  if (interest.socket < 0) return;
  epoll_event event{};
  event.events = EPOLLIN | (interest.write ? uint32_t{EPOLLOUT} : 0u);
  const int operation = interest.socket == current_.socket ? EPOLL_CTL_MOD : EPOLL_CTL_ADD;
  epoll_ctl(epoll_, operation, interest.socket, &event);
}

}  // namespace phalanx::internal
