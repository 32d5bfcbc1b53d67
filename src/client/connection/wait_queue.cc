#include "src/client/connection/wait_queue.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <cstdint>

#include "src/client/socket/fork_guard.h"

namespace phalanx::internal {

WaitQueue::WaitQueue() : nudge_fd_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  if (nudge_fd_ >= 0) CloseInChildren(nudge_fd_);
}

WaitQueue::~WaitQueue() {
  if (nudge_fd_ < 0) return;
  KeepInChildren(nudge_fd_);
  close(nudge_fd_);
}

void WaitQueue::BeginLead(const Waiter* waiter) {
  leading_ = true;
  leader_ = waiter;
}

void WaitQueue::EndLead() {
  leading_ = false;
  leader_ = nullptr;
  if (!nudged_) return;
  uint64_t count = 0;
  [[maybe_unused]] const ssize_t done = read(nudge_fd_, &count, sizeof(count));
  nudged_ = false;
}

void WaitQueue::Nudge() {
  // A thread that does not poll needs no nudge, and one nudge is enough for the poll.
  if (!leading_ || nudged_) return;
  nudged_ = true;
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t done = write(nudge_fd_, &one, sizeof(one));
}

void WaitQueue::WakeEnded(bool callbacks_ready) {
  bool runner_awake = false;
  for (Waiter* waiter : waiters_) {
    // One thread is enough to run all ready callbacks.
    const bool runs = waiter->runs_callbacks && callbacks_ready && !runner_awake;
    if (!runs && !waiter->done()) continue;
    runner_awake = runner_awake || runs;
    // The leader sleeps in ppoll, where a condition variable does not reach it.
    if (waiter == leader_) {
      Nudge();
    } else {
      waiter->wake.Signal();
    }
  }
}

void WaitQueue::WakeNextLeader(const Waiter* self) {
  if (leading_) return;
  for (Waiter* waiter : waiters_) {
    if (waiter == self) continue;
    waiter->wake.Signal();
    return;
  }
}

}  // namespace phalanx::internal
