#include "src/sim/seams/sim_executor.h"

#include <algorithm>
#include <deque>
#include <utility>

#include "absl/strings/str_cat.h"
#include "src/common/check.h"
#include "src/common/time/timer_queue.h"

namespace phalanx::sim {

// Shared by the executor and its events in the queue, which can outlive it.
struct SimExecutor::State {
  // Null once the executor is gone.
  SimExecutor* executor;
  std::deque<Task> tasks;
  TimerQueue timers;
  // The timers that were due when the last one was taken, in order.
  std::deque<TimerId> due;
  // The instant of the next turn, and the number of its event. Events with another number are
  // stale.
  Instant turn_at = Instant::Infinite();
  uint64_t turn = 0;
  bool running = false;
  // A turn takes a timer and a task in alternation, so that neither can starve the other.
  bool timer_last = false;
};

struct SimScheduler::Event {
  Instant when;
  uint64_t tie;
  uint64_t sequence;
  // Either a turn of an executor or an event of the world.
  std::shared_ptr<SimExecutor::State> executor;
  uint64_t turn;
  Task task;

  // The order of a heap with the earliest event in front.
  static bool Later(const Event& a, const Event& b) {
    return std::tie(a.when, a.tie, a.sequence) > std::tie(b.when, b.tie, b.sequence);
  }
};

SimScheduler::SimScheduler(const Options& options) : options_(options), random_(options.seed) {}

SimScheduler::~SimScheduler() {
  // Destructors of tasks can schedule more events; those are dropped too.
  while (!events_.empty()) std::exchange(events_, {});
}

void SimScheduler::At(Instant when, Task event) {
  Push({.when = when,
        .tie = 0,
        .sequence = 0,
        .executor = nullptr,
        .turn = 0,
        .task = std::move(event)});
}

void SimScheduler::Push(Event event) {
  if (event.when.infinite()) return;
  // Time never moves backwards.
  event.when = std::max(event.when, now_);
  event.tie = options_.shuffle_ties ? random_.Next() : 0;
  // Makes the order total, so a run does not depend on the heap.
  event.sequence = ++last_sequence_;
  events_.push_back(std::move(event));
  std::push_heap(events_.begin(), events_.end(), Event::Later);
}

bool SimScheduler::Step() {
  if (events_.empty()) return false;
  std::pop_heap(events_.begin(), events_.end(), Event::Later);
  Event event = std::move(events_.back());
  events_.pop_back();
  now_ = event.when;
  ++steps_;
  if (event.executor == nullptr) {
    event.task();
    // Stale events stay in the heap, because removing one is expensive.
  } else if (event.executor->executor != nullptr && event.executor->turn == event.turn) {
    event.executor->executor->RunOne();
  }
  return true;
}

bool SimScheduler::RunUntil(absl::FunctionRef<bool()> done, absl::Duration limit) {
  const Instant end = now_ + limit;
  while (!done()) {
    if (events_.empty() || events_.front().when > end) return false;
    Step();
  }
  return true;
}

void SimScheduler::RunFor(absl::Duration time) {
  const Instant end = now_ + time;
  RunUntil([] { return false; }, time);
  now_ = end;
}

std::unique_ptr<SimProcess> SimScheduler::NewProcess(absl::string_view name) {
  const absl::Duration offset = options_.skew_clocks
                                    ? absl::Nanoseconds(random_.Below(1'000'000'000'000))
                                    : absl::ZeroDuration();
  return std::make_unique<SimProcess>(*this, name, offset);
}

SimExecutor::SimExecutor(SimScheduler& scheduler, SimProcess& process, std::string name,
                         absl::Duration clock_offset)
    : scheduler_(scheduler),
      process_(process),
      name_(std::move(name)),
      clock_offset_(clock_offset),
      state_(std::make_shared<State>()) {
  state_->executor = this;
}

SimExecutor::~SimExecutor() {
  DropEverything();
  state_->executor = nullptr;
}

void SimExecutor::Post(Task task) {
  // A dead process runs nothing, but its objects can still post while they are destroyed.
  if (!process_.alive()) return;
  state_->tasks.push_back(std::move(task));
  Schedule();
}

Instant SimExecutor::Now() const { return scheduler_.now() + clock_offset_; }

TimerId SimExecutor::RunAt(Instant when, Task task) {
  const TimerId id = state_->timers.Add(when, std::move(task));
  if (!process_.alive()) {
    Cancel(id);
  } else {
    Schedule();
  }
  return id;
}

void SimExecutor::Cancel(TimerId id) { state_->timers.Cancel(id); }

bool SimExecutor::InLoop() const { return state_->running; }

// Schedules the next turn, unless one is scheduled that is not later.
void SimExecutor::Schedule() {
  State& state = *state_;
  if (!process_.alive() || process_.stalled() || state.running) return;
  Instant when = Instant::Infinite();
  if (!state.tasks.empty() || !state.due.empty()) {
    when = scheduler_.now();
  } else if (const Instant next = state.timers.Next(); !next.infinite()) {
    when = std::max(scheduler_.now(), next - clock_offset_);
  }
  // An earlier turn is scheduled already; a later one becomes stale.
  if (when >= state.turn_at) return;
  state.turn_at = when;
  const int64_t delay_nanos = absl::ToInt64Nanoseconds(scheduler_.options_.max_turn_delay);
  if (delay_nanos > 0) {
    when = when + absl::Nanoseconds(scheduler_.random_.Below(static_cast<uint64_t>(delay_nanos)));
  }
  scheduler_.Push({.when = when,
                   .tie = 0,
                   .sequence = 0,
                   .executor = state_,
                   .turn = ++state.turn,
                   .task = nullptr});
}

// Runs one timer or one task, so that turns of different executors interleave as finely as
// possible.
void SimExecutor::RunOne() {
  State& state = *state_;
  state.turn_at = Instant::Infinite();
  if (process_.stalled()) return;
  if (state.due.empty()) {
    std::vector<TimerId> due;
    state.timers.CollectDue(Now(), due);
    state.due.assign(due.begin(), due.end());
  }

  Task task;
  while (task == nullptr && !state.due.empty() && (state.tasks.empty() || !state.timer_last)) {
    task = state.timers.Take(state.due.front());
    state.due.pop_front();
  }
  state.timer_last = task != nullptr;
  if (task == nullptr && !state.tasks.empty()) {
    task = std::move(state.tasks.front());
    state.tasks.pop_front();
  }
  if (task != nullptr) {
    // Detects a task that destroys its own executor.
    const std::shared_ptr<State> keep = state_;
    state.running = true;
    scheduler_.running_ = this;
    task();
    // Destroyed while `running` is set: its captures can post.
    task = nullptr;
    scheduler_.running_ = nullptr;
    state.running = false;
    PHALANX_CHECK(keep->executor == this, "an executor is not destroyed by its own task");
  }
  Schedule();
}

void SimExecutor::DropEverything() {
  State& state = *state_;
  // Destructors of tasks can post more tasks.
  while (!state.tasks.empty() || !state.timers.empty()) {
    state.due.clear();
    const std::deque<Task> tasks = std::exchange(state.tasks, {});
    const std::vector<Task> timers = state.timers.Clear();
  }
}

SimProcess::SimProcess(SimScheduler& scheduler, absl::string_view name, absl::Duration clock_offset)
    : scheduler_(scheduler), name_(name), clock_offset_(clock_offset) {}

SimProcess::~SimProcess() { Kill(); }

SimExecutor& SimProcess::NewExecutor(absl::string_view name) {
  executors_.push_back(std::make_unique<SimExecutor>(
      scheduler_, *this, absl::StrCat(name_, "/", name), clock_offset_));
  return *executors_.back();
}

void SimProcess::Kill() {
  if (!alive_) return;
  for (const auto& executor : executors_) {
    PHALANX_CHECK(!executor->InLoop(), "a process is killed from outside");
  }
  alive_ = false;
  // Connections close before the tasks go, as a kernel closes them before memory is gone.
  for (Task& task : std::exchange(on_death_, {})) task();
  for (const auto& executor : executors_) executor->DropEverything();
}

void SimProcess::Stall() { stalled_ = true; }

void SimProcess::Resume() {
  if (!stalled_) return;
  stalled_ = false;
  for (const auto& executor : executors_) {
    // The turn that was scheduled at the stall has run without effect.
    executor->state_->turn_at = Instant::Infinite();
    executor->Schedule();
  }
}

}  // namespace phalanx::sim
