#include "src/runtime/client/attention.h"

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <cstdint>

#include "src/runtime/client/fork_guard.h"

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

Attention::~Attention() { CloseAll({&epoll_, &event_, &timer_}); }

int Attention::fd() {
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
  now_ = Wish();
  return epoll_;
}

void Attention::Watch(const Wish& wish) {
  // Every unlock of the connection calls Watch, so the common case must not cost a system call.
  if (wish == now_) return;
  if (wish.socket != now_.socket || wish.write != now_.write) WatchSocket(wish);
  if (wish.callbacks != now_.callbacks) {
    uint64_t count = 1;
    [[maybe_unused]] const ssize_t done =
        wish.callbacks ? write(event_, &count, sizeof(count)) : read(event_, &count, sizeof(count));
  }
  if (wish.deadline != now_.deadline) {
    itimerspec spec{};
    if (!wish.deadline.infinite()) {
      // Instants count from the start of CLOCK_MONOTONIC. A timer set to 0 would be disarmed.
      const int64_t nanos = wish.deadline.nanos() > 0 ? wish.deadline.nanos() : 1;
      spec.it_value = {nanos / 1000000000, nanos % 1000000000};
    }
    timerfd_settime(timer_, TFD_TIMER_ABSTIME, &spec, nullptr);
  }
  now_ = wish;
}

void Attention::WatchSocket(const Wish& wish) {
  // A closed descriptor number can be reused at once, so the old socket leaves the set explicitly.
  if (now_.socket >= 0 && wish.socket != now_.socket) {
    epoll_ctl(epoll_, EPOLL_CTL_DEL, now_.socket, nullptr);
  }
  if (wish.socket < 0) return;
  epoll_event event{};
  event.events = EPOLLIN | (wish.write ? uint32_t{EPOLLOUT} : 0u);
  const int operation = wish.socket == now_.socket ? EPOLL_CTL_MOD : EPOLL_CTL_ADD;
  epoll_ctl(epoll_, operation, wish.socket, &event);
}

}  // namespace phalanx::internal
