// EventLoop: the production Executor, one thread over Asio's reactor (epoll).
//
// A turn waits for an event, reads the clock once, runs the due timers, then the callbacks of ready
// descriptors, then the posted tasks in the order of their Post. Tasks that these post run in the
// same turn, up to a number of rounds or a tenth of a millisecond; the rest wait for the next turn.
// An idle loop blocks in the kernel and uses no CPU. Post costs a short lock. It wakes the loop
// only if the loop sleeps, and only once for any number of tasks that follow.
//
// Owned by `main` (or a test). Any thread may call Post and Stop. The other methods of Executor,
// and Watch, are called by tasks of the loop, or by one thread while the loop does not run (before
// Start or Run, after Stop).
#ifndef PHALANX_NET_LOOP_EVENT_LOOP_H_
#define PHALANX_NET_LOOP_EVENT_LOOP_H_

#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "src/common/time/executor.h"
#include "src/net/loop/fd_watcher.h"

namespace phalanx::net {

class EventLoop final : public Executor {
 public:
  EventLoop();
  // Stops the loop. REQUIRES: not called from a task of this loop; its watchers are destroyed.
  ~EventLoop() override;

  // Runs the loop on a new thread named `name` (top shows the first 15 bytes). Returns
  // ResourceExhausted if the thread cannot be created; the loop has not started then. REQUIRES:
  // called at most once, and not together with Run.
  absl::Status Start(absl::string_view name);

  // Runs the loop on the calling thread until Stop.
  void Run();

  // Ends the loop after the current turn. The thread of the loop destroys tasks that did not run.
  // On any other thread, Stop returns after the thread made by Start has ended, also if several
  // threads call it. Idempotent. A stopped loop does not start again.
  void Stop();

  void Post(Task task) override;
  Instant Now() const override;
  Instant ReadClock() const override;
  TimerId RunAt(Instant when, Task task) override;
  void Cancel(TimerId id) override;
  bool InLoop() const override;

  // Starts to watch `fd`, which becomes non-blocking. Returns Unavailable if the kernel refuses (a
  // descriptor that cannot be polled, or no memory).
  absl::StatusOr<std::unique_ptr<FdWatcher>> Watch(int fd);

  // Counters since the loop was constructed. Any thread.
  struct Stats {
    uint64_t turns = 0;
    // Number of Posts that had to wake the loop.
    uint64_t wakes = 0;
    absl::Duration longest_turn;
  };
  Stats stats() const;

 private:
  class Impl;
  const std::unique_ptr<Impl> impl_;
};

}  // namespace phalanx::net

#endif  // PHALANX_NET_LOOP_EVENT_LOOP_H_
