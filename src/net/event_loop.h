// EventLoop: the production Executor, one thread over Asio's reactor (epoll).
//
// A turn: wait for something to do, read the clock once, run the timers that are due, then the
// callbacks of ready descriptors, then the tasks that were posted, in the order in which they were;
// those that post others leave the rest to the next turn after some rounds, or a tenth of a
// millisecond. An idle loop blocks in the
// kernel and uses no CPU. Posting costs a short lock; it wakes the loop only
// when the loop sleeps, and then once however many tasks follow.
//
// Owned by `main` (or a test). Post and Stop may be called from any thread; the rest of Executor
// and Watch from the loop's tasks, or from one thread while the loop does not run (before Start or
// Run, after Stop).
#ifndef PHALANX_NET_EVENT_LOOP_H_
#define PHALANX_NET_EVENT_LOOP_H_

#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "src/common/executor.h"
#include "src/net/fd_watcher.h"

namespace phalanx::net {

class EventLoop final : public Executor {
 public:
  EventLoop();
  // Stops. REQUIRES: not called from a task of this loop; its watchers are destroyed.
  ~EventLoop() override;

  // Runs on a thread of its own, named `name` (the first 15 bytes show in top). ResourceExhausted
  // when there is none to be had; the loop has not started then. REQUIRES: called once at most, and
  // not together with Run.
  absl::Status Start(absl::string_view name);

  // Runs on the calling thread until Stop.
  void Run();

  // Ends the loop after the turn in progress; tasks that did not run are destroyed on its thread.
  // Called elsewhere than on the loop, it returns when the thread that Start made has ended,
  // however many call it. Idempotent. A stopped loop does not start again.
  void Stop();

  void Post(Task task) override;
  Instant Now() const override;
  TimerId RunAt(Instant when, Task task) override;
  void Cancel(TimerId id) override;
  bool InLoop() const override;

  // Starts to watch `fd`, which becomes non-blocking. Unavailable when the kernel refuses (not a
  // descriptor that can be polled, out of memory).
  absl::StatusOr<std::unique_ptr<FdWatcher>> Watch(int fd);

  // Counters since the loop was made. Any thread.
  struct Stats {
    uint64_t turns = 0;
    // Times that a Post had to wake the loop.
    uint64_t wakes = 0;
    absl::Duration longest_turn;
  };
  Stats stats() const;

 private:
  class Impl;
  const std::unique_ptr<Impl> impl_;
};

}  // namespace phalanx::net

#endif  // PHALANX_NET_EVENT_LOOP_H_
