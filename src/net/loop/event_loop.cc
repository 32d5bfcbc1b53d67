#include "src/net/loop/event_loop.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <asio/executor_work_guard.hpp>
#include <asio/io_context.hpp>
#include <asio/posix/stream_descriptor.hpp>
#include <asio/steady_timer.hpp>
#include <atomic>
#include <cstdint>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "src/common/check.h"
#include "src/common/status_macros.h"
#include "src/common/threads/mutex.h"
#include "src/common/threads/thread.h"
#include "src/common/time/clock.h"
#include "src/common/time/timer_queue.h"
#include "src/net/loop/task_inbox.h"

namespace phalanx::net {
namespace {

enum Direction { kReadable = 0, kWritable = 1 };

// Limits for tasks that post tasks, before the loop looks at descriptors and timers again: the
// number of rounds, and the latest start of a round. A task that posts itself to let others run
// must soon let descriptors and timers run, too.
constexpr int kRoundsPerTurn = 8;
constexpr absl::Duration kRoundsTime = absl::Microseconds(100);

// The state that a watcher shares with the waits that Asio holds for it.
struct Watch {
  Watch(asio::io_context& context, std::vector<std::pair<std::shared_ptr<Watch>, Direction>>& ready)
      : descriptor(context), ready_list(ready) {}

  asio::posix::stream_descriptor descriptor;
  std::vector<std::pair<std::shared_ptr<Watch>, Direction>>& ready_list;
  Task callback[2];
  // Asio holds a wait. The wait stays there when the callback is disarmed.
  bool waiting[2] = {false, false};
};

using ReadyList = std::vector<std::pair<std::shared_ptr<Watch>, Direction>>;

class AsioFdWatcher final : public FdWatcher {
 public:
  explicit AsioFdWatcher(std::shared_ptr<Watch> watch) : watch_(std::move(watch)) {}

  ~AsioFdWatcher() override {
    // Destroyed last: a callback can own the owner of this watcher.
    const Task readable = std::exchange(watch_->callback[kReadable], nullptr);
    const Task writable = std::exchange(watch_->callback[kWritable], nullptr);
    if (watch_->descriptor.is_open()) watch_->descriptor.release();
  }

  void OnReadable(Task ready) override { Arm(kReadable, std::move(ready)); }
  void OnWritable(Task ready) override { Arm(kWritable, std::move(ready)); }

 private:
  void Arm(Direction direction, Task ready) {
    const bool armed = ready != nullptr;
    std::swap(watch_->callback[direction], ready);
    if (!armed || watch_->waiting[direction]) return;
    watch_->waiting[direction] = true;
    watch_->descriptor.async_wait(direction == kReadable ? asio::posix::descriptor_base::wait_read
                                                         : asio::posix::descriptor_base::wait_write,
                                  // An error counts as readiness: the owner's system call returns
                                  // it. After the watcher is destroyed there is no callback to run.
                                  [watch = watch_, direction](const asio::error_code&) mutable {
                                    watch->waiting[direction] = false;
                                    ReadyList& ready_list = watch->ready_list;
                                    ready_list.emplace_back(std::move(watch), direction);
                                  });
  }

  const std::shared_ptr<Watch> watch_;
};

// Interrupts the sleep of the loop from any thread. Asio's own interrupt (asio::post) signals with
// Asio's lock held: a thread that the kernel runs at once on the signalling CPU then blocks on that
// lock, and both change places once more. This one signals without a lock.
class Waker {
 public:
  Waker(asio::io_context& context, TaskInbox& inbox) : descriptor_(context), inbox_(inbox) {
    // As in the constructor of the context, a process without a descriptor left cannot continue.
    const int fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    PHALANX_CHECK(fd >= 0, "a descriptor is left for every loop");
    descriptor_.assign(fd);
    Arm();
  }

  // REQUIRES: the inbox requires this wake-up.
  void Wake() {
    const uint64_t one = 1;
    // Fails only if 2^64 - 2 wake-ups were written and none was taken.
    (void)!write(descriptor_.native_handle(), &one, sizeof(one));
  }

 private:
  void Arm() {
    descriptor_.async_wait(asio::posix::descriptor_base::wait_read,
                           [this](const asio::error_code& error) {
                             if (error) return;
                             Take();
                             Arm();
                           });
  }

  // Read first: a later wake-up must not be lost with this one.
  void Take() {
    uint64_t wake_ups = 0;
    const ssize_t n = read(descriptor_.native_handle(), &wake_ups, sizeof(wake_ups));
    // Nothing to read: the thread that woke the loop is about to write.
    if (n == sizeof(wake_ups)) inbox_.TakeWakeUp();
  }

  asio::posix::stream_descriptor descriptor_;
  TaskInbox& inbox_;
};

// The timer that ends a sleep. Loop thread only.
class Alarm {
 public:
  explicit Alarm(asio::io_context& context) : timer_(context) {}

  // Wakes the loop at `when` or earlier. Keeps an alarm that is set for an earlier time, so that a
  // timer that is postponed again and again costs no system call.
  void SetBy(Instant when) {
    if (at_ <= when) return;
    at_ = when;
    timer_.expires_at(
        std::chrono::steady_clock::time_point(std::chrono::nanoseconds(when.nanos())));
    // Setting the alarm again cancels the wait before, whose error must not reset the new time.
    timer_.async_wait([this](const asio::error_code& error) {
      if (!error) at_ = Instant::Infinite();
    });
  }

 private:
  asio::steady_timer timer_;
  Instant at_ = Instant::Infinite();
};

// Written by the loop (wakes: by any thread), read by any thread. Relaxed: the numbers order
// nothing.
class LoopCounters {
 public:
  void CountTurn(Instant begin, Instant end) {
    // Only the loop writes these two, so a load and a store suffice.
    turns_.store(turns_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
    const int64_t nanos = end.nanos() - begin.nanos();
    if (nanos > longest_turn_nanos_.load(std::memory_order_relaxed)) {
      longest_turn_nanos_.store(nanos, std::memory_order_relaxed);
    }
  }
  void CountWake() { wakes_.fetch_add(1, std::memory_order_relaxed); }

  EventLoop::Stats stats() const {
    EventLoop::Stats stats;
    stats.turns = turns_.load(std::memory_order_relaxed);
    stats.wakes = wakes_.load(std::memory_order_relaxed);
    stats.longest_turn = absl::Nanoseconds(longest_turn_nanos_.load(std::memory_order_relaxed));
    return stats;
  }

 private:
  std::atomic<uint64_t> turns_{0};
  std::atomic<int64_t> longest_turn_nanos_{0};
  std::atomic<uint64_t> wakes_{0};
};

}  // namespace

class EventLoop::Impl {
 public:
  Impl()
      : context_(1), work_(context_.get_executor()), waker_(context_, inbox_), alarm_(context_) {}

  ~Impl() {
    Stop();
    // A loop that never ran still has its posted tasks.
    DropEverything();
  }

  absl::Status Start(absl::string_view name) {
    MutexLock lock(thread_mu_);
    PHALANX_ASSIGN_OR_RETURN(thread_, StartThread(name, [this] { Run(); }));
    return absl::OkStatus();
  }

  void Run() {
    current_ = this;
    while (GatherWork()) RunTurn();
    DropEverything();
    current_ = nullptr;
  }

  void Stop() {
    // A task of the loop cannot wait for its own thread.
    if (InLoop()) return RequestStop();
    // A second caller waits here for the first, which waits for the thread. So Stop returns to both
    // only after the thread has ended.
    MutexLock lock(thread_mu_);
    RequestStop();
    if (thread_.joinable()) thread_.join();
  }

  // A task posted after the end of the loop is destroyed here, without the lock of the inbox.
  void Post(Task task) {
    if (inbox_.Post(std::move(task))) Wake();
  }

  Instant Now() const { return InLoop() ? now_ : MonotonicNow(); }
  TimerId RunAt(Instant when, Task task) { return timers_.Add(when, std::move(task)); }
  void Cancel(TimerId id) { timers_.Cancel(id); }
  bool InLoop() const { return current_ == this; }

  absl::StatusOr<std::unique_ptr<FdWatcher>> Watch(int fd) {
    auto watch = std::make_shared<net::Watch>(context_, ready_);
    asio::error_code error;
    watch->descriptor.assign(fd, error);
    if (error) {
      return absl::UnavailableError(
          absl::StrCat("cannot watch descriptor ", fd, ": ", error.message()));
    }
    return std::make_unique<AsioFdWatcher>(std::move(watch));
  }

  Stats stats() const { return counters_.stats(); }

 private:
  void RequestStop() {
    if (inbox_.RequestStop()) Wake();
  }

  void Wake() {
    counters_.CountWake();
    waker_.Wake();
  }

  // Fills batch_ and ready_ and reads the clock. Sleeps until one of them or a timer has work.
  // Returns false after Stop.
  bool GatherWork() {
    const bool sleep = inbox_.Take(/*may_sleep=*/timers_.Next() > MonotonicNow(), batch_);
    if (sleep) {
      alarm_.SetBy(timers_.Next());
      // Other ready descriptors follow in the next turns. To look for them here would be one more
      // wait in the kernel for each wake-up, mostly for nothing.
      context_.run_one();
    } else {
      context_.poll();
    }
    // Only after a sleep: without one, the batch is already taken and must not be swapped again.
    if (sleep) inbox_.Take(/*may_sleep=*/false, batch_);
    now_ = MonotonicNow();
    return !inbox_.stopping();
  }

  void RunTurn() {
    timers_.CollectDue(now_, due_);
    for (const TimerId id : due_) {
      // Empty if an earlier timer of this turn has cancelled it.
      Task task = timers_.Take(id);
      if (task != nullptr) task();
    }
    due_.clear();

    ready_running_.swap(ready_);
    for (auto& [watch, direction] : ready_running_) {
      // Empty if the callback was disarmed, or its watcher destroyed, since the event arrived.
      Task task = std::exchange(watch->callback[direction], nullptr);
      if (task != nullptr) task();
    }
    ready_running_.clear();

    RunBatch();
    // A request often passes through several tasks, each of which posts the next. Running them here
    // saves them a system call per step.
    for (int round = 1; round < kRoundsPerTurn; ++round) {
      if (MonotonicNow() - now_ > kRoundsTime || !inbox_.TakeMore(batch_)) break;
      RunBatch();
    }
    counters_.CountTurn(now_, MonotonicNow());
  }

  void RunBatch() {
    for (Task& task : batch_) {
      task();
      // Destroyed before the next task runs, so that no task holds resources for the rest of the
      // batch.
      task = nullptr;
    }
    batch_.clear();
  }

  // Destroys tasks that will not run. Their destructors can post tasks and add timers, which are
  // destroyed, too.
  void DropEverything() {
    bool dropped = true;
    while (dropped) {
      const std::vector<Task> timers = timers_.Clear();
      const ReadyList ready = std::exchange(ready_, {});
      const std::vector<Task> batch = std::exchange(batch_, {});
      const std::vector<Task> incoming = inbox_.Drain();
      dropped = !timers.empty() || !ready.empty() || !batch.empty() || !incoming.empty();
    }
  }

  static thread_local const Impl* current_;

  // Any thread; it synchronizes itself.
  TaskInbox inbox_;

  // Asio; its handlers run on the loop's thread only.
  asio::io_context context_;
  asio::executor_work_guard<asio::io_context::executor_type> work_;
  Waker waker_;  // any thread may call Wake
  Alarm alarm_;

  // Any thread.
  LoopCounters counters_;

  // Loop thread only.
  Instant now_ = MonotonicNow();
  TimerQueue timers_;
  std::vector<TimerId> due_;
  ReadyList ready_;
  ReadyList ready_running_;
  std::vector<Task> batch_;

  // Held by a thread that stops the loop until the thread of the loop has ended.
  Mutex thread_mu_;
  std::thread thread_ ABSL_GUARDED_BY(thread_mu_);
};

thread_local const EventLoop::Impl* EventLoop::Impl::current_ = nullptr;

EventLoop::EventLoop() : impl_(std::make_unique<Impl>()) {}
EventLoop::~EventLoop() = default;
absl::Status EventLoop::Start(absl::string_view name) { return impl_->Start(name); }
void EventLoop::Run() { impl_->Run(); }
void EventLoop::Stop() { impl_->Stop(); }
void EventLoop::Post(Task task) { impl_->Post(std::move(task)); }
Instant EventLoop::Now() const { return impl_->Now(); }
Instant EventLoop::ReadClock() const { return MonotonicNow(); }
TimerId EventLoop::RunAt(Instant when, Task task) { return impl_->RunAt(when, std::move(task)); }
void EventLoop::Cancel(TimerId id) { impl_->Cancel(id); }
bool EventLoop::InLoop() const { return impl_->InLoop(); }
absl::StatusOr<std::unique_ptr<FdWatcher>> EventLoop::Watch(int fd) { return impl_->Watch(fd); }
EventLoop::Stats EventLoop::stats() const { return impl_->stats(); }

}  // namespace phalanx::net
