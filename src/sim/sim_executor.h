// Simulated time: one scheduler for the whole cluster, processes on it, and the executors that are
// their event loops.
//
//   SimScheduler ── one clock, one queue of events
//     ├─ events of the world (At, After): what the network does, what a test breaks and mends
//     └─ SimProcess ── may be stalled (as by SIGSTOP) and killed
//          └─ SimExecutor ── an Executor: its tasks and timers
//
// Everything happens on the test's thread, inside Step and what calls it. Events run in order of
// time, then of insertion; with `shuffle_ties` those of one instant run in an order drawn from the
// seed (each executor's own tasks stay in order). A run replays exactly from its seed. Testonly.
#ifndef PHALANX_SIM_SIM_EXECUTOR_H_
#define PHALANX_SIM_SIM_EXECUTOR_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "src/common/executor.h"
#include "src/common/instant.h"
#include "src/common/random.h"

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
    // Each process's clock starts at an instant of its own, so that none can be sent to another.
    bool skew_clocks = true;
  };

  explicit SimScheduler(const Options& options);
  // REQUIRES: its processes are destroyed.
  ~SimScheduler();

  Instant now() const { return now_; }
  // Events run so far.
  uint64_t steps() const { return steps_; }
  // Whose task runs now; null between tasks and during events of the world.
  const SimExecutor* running() const { return running_; }
  // For parts that draw: fork it.
  Random& random() { return random_; }

  // An event of the world, at `when` or now if that is past. It cannot be cancelled.
  void At(Instant when, Task event);
  void After(absl::Duration delay, Task event) { At(now_ + delay, std::move(event)); }

  // Runs the next event, moving the clock to it. False when there is none.
  bool Step();
  // Steps until `done` (asked before each step) is true: true then. False when `limit` of simulated
  // time has passed, or when nothing is left that could happen.
  bool RunUntil(absl::FunctionRef<bool()> done, absl::Duration limit);
  // Steps through all events of the next `time`; the clock is then that much later.
  void RunFor(absl::Duration time);

  // A process that runs; its executors live as long as it.
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
  // A heap, the next event in front.
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
  // Kills it. REQUIRES: whatever uses its executors is destroyed.
  ~SimProcess();

  const std::string& name() const { return name_; }
  bool alive() const { return alive_; }
  bool stalled() const { return stalled_; }

  // One more event loop of the process.
  SimExecutor& NewExecutor(absl::string_view name);

  // From here on no task of the process runs; those that wait are destroyed. What the process held
  // in the world (see OnDeath) ends first. Idempotent. REQUIRES: not called from its own tasks.
  void Kill();
  // Its tasks wait until Resume, as after SIGSTOP and SIGCONT; time and the network go on.
  void Stall();
  void Resume();

  // Runs when the process dies, before its tasks are dropped: how the world learns of it.
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

#endif  // PHALANX_SIM_SIM_EXECUTOR_H_
