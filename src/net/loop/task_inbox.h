// TaskInbox: the tasks that threads post to an event loop, and the decision which Post has to wake
// the loop.
//
//             Take finds no task, and the loop can sleep
//       awake ──────────────────────────────────────────► asleep
//         ▲                                                  │ Post, RequestStop or Take
//         └──────────────────────────────────────────────────┘
//
// The first Post or RequestStop ends the sleep: it returns true, and its caller wakes the loop,
// unless a wake-up is in flight. If an event or a timer ends the sleep, the next Take does this.
//
//   open ──RequestStop──► stopping ──Drain finds no task──► closed
//
// Invariants
//  1. At most one wake-up is in flight: between a call that returned true and TakeWakeUp, every
//     other call returns false.
//  2. A closed inbox takes no task. So no task stays in it, and the thread that posts too late
//     destroys its task itself.
//
// Owned by the loop. Thread rule: any thread may call Post and RequestStop; the thread of the loop
// calls the other methods.
#ifndef PHALANX_NET_LOOP_TASK_INBOX_H_
#define PHALANX_NET_LOOP_TASK_INBOX_H_

#include <utility>
#include <vector>

#include "src/common/threads/mutex.h"
#include "src/common/time/executor.h"

namespace phalanx::net {

class TaskInbox {
 public:
  // Adds the task. Leaves it with the caller if the inbox is closed, since the destructor of a task
  // can call Post and must not run under the lock. Returns true if the caller must wake the loop.
  [[nodiscard]] bool Post(Task&& task) {
    MutexLock lock(mu_);
    if (closed_) return false;
    tasks_.push_back(std::move(task));
    return NeedsWakeUp();
  }

  // Marks the loop as stopping. Returns true if the caller must wake the loop. Idempotent.
  [[nodiscard]] bool RequestStop() {
    MutexLock lock(mu_);
    stopping_ = true;
    return NeedsWakeUp();
  }

  bool stopping() const {
    MutexLock lock(mu_);
    return stopping_;
  }

  // The wake-up has arrived at the loop, and another one can be sent.
  void TakeWakeUp() {
    MutexLock lock(mu_);
    wake_up_in_flight_ = false;
  }

  // Moves all tasks into `batch`. Returns true if there are none and the loop sleeps now: the next
  // Post or RequestStop wakes it. REQUIRES: `batch` is empty.
  bool Take(bool may_sleep, std::vector<Task>& batch) {
    MutexLock lock(mu_);
    batch.swap(tasks_);
    asleep_ = may_sleep && batch.empty() && !stopping_;
    return asleep_;
  }

  // Moves the tasks that were posted in this turn into `batch`, unless the loop stops. Returns true
  // if there are any. REQUIRES: `batch` is empty.
  bool TakeMore(std::vector<Task>& batch) {
    MutexLock lock(mu_);
    if (!stopping_) batch.swap(tasks_);
    return !batch.empty();
  }

  // Returns the tasks that will not run, for the caller to destroy. If there are none, the inbox is
  // closed.
  std::vector<Task> Drain() {
    MutexLock lock(mu_);
    closed_ = tasks_.empty();
    return std::exchange(tasks_, {});
  }

 private:
  bool NeedsWakeUp() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    const bool needed = asleep_ && !wake_up_in_flight_;
    asleep_ = false;
    wake_up_in_flight_ |= needed;
    return needed;
  }

  mutable Mutex mu_;
  std::vector<Task> tasks_ ABSL_GUARDED_BY(mu_);
  // Take has let the loop sleep, and there was no Post, RequestStop or Take since. The loop can be
  // awake although this is true: an event or a timer wakes it before it calls Take.
  bool asleep_ ABSL_GUARDED_BY(mu_) = false;
  bool wake_up_in_flight_ ABSL_GUARDED_BY(mu_) = false;
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  bool closed_ ABSL_GUARDED_BY(mu_) = false;
};

}  // namespace phalanx::net

#endif  // PHALANX_NET_LOOP_TASK_INBOX_H_
