// Decides what follows when a task of a launch ends: whether the task is started again, whether the
// launch stops, and with which exit code.
//
//            Ended(code) without a restart left, Stop(code) or Signalled(number)
//   kRunning ─────────────────────────────────────────────────► kStopping
//
// In kRunning a failed task is started again; in kStopping no task is started. The launch ends when
// no task runs.
//
// A core: no process, no clock, no signal handler. Its owner starts and stops the processes.
#ifndef PHALANX_CLI_LAUNCH_LAUNCH_PLAN_H_
#define PHALANX_CLI_LAUNCH_LAUNCH_PLAN_H_

#include <cstddef>
#include <optional>
#include <vector>

#include "absl/time/time.h"
#include "src/common/time/instant.h"

namespace phalanx::runtime {

// The exit code of a launch with a declared death that was not made.
inline constexpr int kMissedDeath = 1;

class LaunchPlan {
 public:
  // `restarts`: how often tasks are started again, all of them together.
  LaunchPlan(size_t tasks, int restarts) : restarts_left_(restarts), lives_(tasks, 0) {}

  // The owner starts the process of a task. REQUIRES: the task does not run, !stopping().
  void Started() { ++running_; }

  enum class Next {
    kNothing,
    kStart,  // start this task again, in its next life
    kStop,   // stop all tasks that run
    kKill,   // kill all tasks that run
  };
  // Signals of other kinds than SIGINT count as one within this time: `timeout` sends its SIGTERM
  // to the launch, and once more to the group of the launch.
  static constexpr absl::Duration kOneStop = absl::Seconds(1);

  // The process of `task` has ended with this exit code. `missed`: it was to be killed on order,
  // and was not; the launch has failed then, whatever restarts are left. REQUIRES: it was started.
  Next Ended(size_t task, int code, bool missed = false);
  // Stops the launch for another reason than a failed task. Returns false if it stops already; the
  // exit code is then that of the first reason.
  bool Stop(int code);
  // This process gets a signal. The first one stops the launch, unless it stops already, because a
  // task has failed; tasks then still have their time to end. A later one kills the tasks.
  Next Signalled(int number, Instant now);

  bool stopping() const { return phase_ == Phase::kStopping; }
  // REQUIRES: every task was started, or stopping().
  bool finished() const { return running_ == 0; }
  // 0 if every task ended with 0, else the code of the first reason to stop. REQUIRES: finished().
  int exit_code() const { return exit_code_; }
  // How often `task` was started again.
  int life(size_t task) const { return lives_[task]; }
  int restarts_left() const { return restarts_left_; }

 private:
  enum class Phase { kRunning, kStopping };

  Phase phase_ = Phase::kRunning;
  size_t running_ = 0;
  int restarts_left_;
  std::vector<int> lives_;
  int exit_code_ = 0;
  std::optional<Instant> first_signal_;
};

}  // namespace phalanx::runtime

#endif  // PHALANX_CLI_LAUNCH_LAUNCH_PLAN_H_
