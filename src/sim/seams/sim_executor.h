// Simulated time: one scheduler for the whole cluster, its processes, and the executors that are
// their event loops.
//
//   SimScheduler ── one clock, one queue of events
//     ├─ events of the world (At, After): the network's steps, a test's faults and repairs
//     └─ SimProcess ── can be stalled (like SIGSTOP) and killed
//          └─ SimExecutor ── an Executor: its tasks and timers
//
// Everything runs on the test's thread, inside Step and its callers. Events run in order of time,
// then of insertion. With `shuffle_ties`, events of one instant run in an order drawn from the seed
// (each executor keeps the order of its own tasks). A run replays exactly from its seed. Testonly.
#ifndef PHALANX_SIM_SEAMS_SIM_EXECUTOR_H_
#define PHALANX_SIM_SEAMS_SIM_EXECUTOR_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "src/common/random.h"
#include "src/common/time/executor.h"
#include "src/common/time/instant.h"

namespace phalanx::sim {

class SimExecutor;
class SimProcess;

class SimScheduler {
 public:
  struct Options {
    uint64_t seed = 1;
    // Events of one instant run in an order drawn from the seed.
    bool shuffle_ties = false;
    // Each turn of an executor starts up to this much late.
    absl::Duration max_turn_delay = absl::ZeroDuration();
    // Each process's clock starts at its own instant, so an instant of one process is useless to
    // another.
    bool skew_clocks = true;
  };

  explicit SimScheduler(const Options& options);
  // REQUIRES: its processes are destroyed.
  ~SimScheduler();

  Instant now() const { return now_; }
  // The number of events run so far.
  uint64_t steps() const { return steps_; }
  // The executor whose task is running; null between tasks and during events of the world.
  const SimExecutor* running() const { return running_; }
  // The source of randomness. Users fork it.
  Random& random() { return random_; }

  // Schedules an event of the world, at `when`, or now if `when` is in the past. It cannot be
  // cancelled.
  void At(Instant when, Task event);
  void After(absl::Duration delay, Task event) { At(now_ + delay, std::move(event)); }

  // Runs the next event and moves the clock to it. Returns false if there is none.
  bool Step();
  // Steps until `done` returns true (checked before each step), and returns true. Returns false if
  // `limit` of simulated time has passed or no event is left.
  bool RunUntil(absl::FunctionRef<bool()> done, absl::Duration limit);
  // Runs all events of the next `time`. The clock is that much later afterwards.
  void RunFor(absl::Duration time);

  // Starts a process. Its executors live as long as the process.
  std::unique_ptr<SimProcess> NewProcess(absl::string_view name);

 private:
  friend class SimExecutor;
  struct Event;

  void Push(Event event);

  const Options options_;
  Random random_;
  Instant now_;
  uint64_t steps_ = 0;
  uint64_t last_sequence_ = 0;
  const SimExecutor* running_ = nullptr;
  // A heap with the next event in front.
  std::vector<Event> events_;
};

class SimExecutor final : public Executor {
 public:
  SimExecutor(SimScheduler& scheduler, SimProcess& process, std::string name,
              absl::Duration clock_offset);
  ~SimExecutor() override;

  void Post(Task task) override;
  // The process's own clock: see Options::skew_clocks.
  Instant Now() const override;
  TimerId RunAt(Instant when, Task task) override;
  void Cancel(TimerId id) override;
  bool InLoop() const override;

  const std::string& name() const { return name_; }
  SimProcess& process() { return process_; }

 private:
  friend class SimProcess;
  friend class SimScheduler;
  struct State;

  void Schedule();
  void RunOne();
  void DropEverything();

  SimScheduler& scheduler_;
  SimProcess& process_;
  const std::string name_;
  const absl::Duration clock_offset_;
  const std::shared_ptr<State> state_;
};

class SimProcess {
 public:
  SimProcess(SimScheduler& scheduler, absl::string_view name, absl::Duration clock_offset);
  // Kills the process. REQUIRES: all users of its executors are destroyed.
  ~SimProcess();

  const std::string& name() const { return name_; }
  bool alive() const { return alive_; }
  bool stalled() const { return stalled_; }

  // Adds an event loop to the process.
  SimExecutor& NewExecutor(absl::string_view name);

  // Kills the process: no task of it runs any more, and waiting tasks are destroyed. The process's
  // resources in the world (see OnDeath) end first. Idempotent. REQUIRES: not called from its own
  // tasks.
  void Kill();
  // The tasks wait until Resume, as after SIGSTOP and SIGCONT. Time and the network continue.
  void Stall();
  void Resume();

  // Registers a task for the death of the process, before its tasks are dropped: the world learns
  // of the death from it.
  void OnDeath(Task task) { on_death_.push_back(std::move(task)); }

 private:
  SimScheduler& scheduler_;
  const std::string name_;
  const absl::Duration clock_offset_;
  bool alive_ = true;
  bool stalled_ = false;
  std::vector<std::unique_ptr<SimExecutor>> executors_;
  std::vector<Task> on_death_;
};

}  // namespace phalanx::sim

#endif  // PHALANX_SIM_SEAMS_SIM_EXECUTOR_H_
