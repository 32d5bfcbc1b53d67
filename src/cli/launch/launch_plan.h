// Decides what follows when a task of a launch ends: whether the task is started again, whether the
// launch stops, and with which exit code.
//
//            Ended(code) without a restart left, Stop(code) or Signalled(number)
//   kRunning ─────────────────────────────────────────────────► kStopping
//
// In kRunning a failed task is started again; in kStopping no task is started. The launch ends when
// no task runs.
//
// Servers of a parameter server are tasks like the workers. When all workers have ended with 0, the
// launch waits for the servers without a limit: they can have the result to write. So one that
// fails then is started again as well, or fails the launch.
//
// A spare waits until a server has died that does not come back, and takes its part. So without a
// restart, each failure of a server or a spare costs one of the spares, and with none left it fails
// the launch. When nothing but spares runs, they are ended. A server can have left the job, and
// fail behind that: no spare takes its part then. So a server that fails when the workers have
// ended fails the launch, and so does one before that, in the end, whose part no spare has had.
//
// A core: no process, no clock, no signal handler. Its owner starts and stops the processes.
#ifndef PHALANX_CLI_LAUNCH_LAUNCH_PLAN_H_
#define PHALANX_CLI_LAUNCH_LAUNCH_PLAN_H_

#include <cstddef>
#include <map>
#include <optional>
#include <vector>

#include "absl/time/time.h"
#include "src/common/time/instant.h"

namespace phalanx::runtime {

// The exit code of a launch with a declared death that was not made.
inline constexpr int kMissedDeath = 1;

class LaunchPlan {
 public:
  // `servers` are the first of the tasks, `spares` the last ones.
  struct Roles {
    size_t servers = 0;
    size_t spares = 0;
    size_t spares_of_job = 0;
    bool alone = true;  // no other launch has tasks of the job
  };
  // `restarts`: how often tasks are started again, all of them together.
  LaunchPlan(size_t tasks, int restarts) : LaunchPlan(tasks, restarts, Roles()) {}
  LaunchPlan(size_t tasks, int restarts, const Roles& roles)
      : roles_(roles),
        workers_left_(tasks - roles.servers - roles.spares),
        others_left_(tasks - roles.spares),
        spares_left_(roles.spares_of_job),
        restarts_left_(restarts),
        lives_(tasks, 0) {}

  // The owner starts the process of a task. REQUIRES: the task does not run, !stopping().
  void Started() { ++running_; }

  // The servers whose parts a spare has had; nothing: it has not said so.
  using Parts = std::optional<std::vector<int>>;
  enum class Next {
    kNothing,
    kStart,  // start this task again, in its next life
    kSpare,  // nothing: a spare takes its part
    kStop,   // stop all tasks that run
    kKill,   // kill all tasks that run
  };
  // Signals of other kinds than SIGINT count as one within this time: `timeout` sends its SIGTERM
  // to the launch, and once more to the group of the launch.
  static constexpr absl::Duration kOneStop = absl::Seconds(1);

  // The process of `task` has ended with this exit code. `missed`: it was to be killed on order,
  // and was not; the launch has failed then, whatever restarts are left. `parts`: of a spare.
  // REQUIRES: it was started.
  Next Ended(size_t task, int code, bool missed = false, const Parts& parts = {});
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
  // The workers have all ended with 0, and the launch waits for the servers alone, if one of these
  // runs or is to be started again.
  bool awaits_servers() const {
    return roles_.alone && roles_.servers > 0 && workers_left_ == 0 && !stopping();
  }
  // All others have ended with 0 or were replaced, and the spares that run are not needed. Once:
  // how they end counts for nothing.
  bool TakeOnlySpares();
  struct Lost {
    size_t server = 0;
    int code = 0;
  };
  // A server that has failed and whose part no spare has had to its end, with the code of the last
  // failure. REQUIRES: finished(), !stopping().
  std::optional<Lost> lost() const;
  // How often `task` was started again.
  int life(size_t task) const { return lives_[task]; }
  int restarts_left() const { return restarts_left_; }
  size_t spares_left() const { return spares_left_; }
  // More run than servers, workers and spares that are left: some spare has a part.
  bool spares_serve() const { return running_ > others_left_ + spares_left_; }

 private:
  enum class Phase { kRunning, kStopping };

  bool IsSpare(size_t task) const { return task >= lives_.size() - roles_.spares; }
  void NoteParts(const Parts& parts, int code);

  const Roles roles_;
  Phase phase_ = Phase::kRunning;
  size_t running_ = 0;
  // Workers that have not ended with 0.
  size_t workers_left_;
  // Servers and workers that have not ended with 0, and were not replaced.
  size_t others_left_;
  // That have not failed and have no part.
  size_t spares_left_;
  bool spares_end_ = false;
  // Servers that were left to the spares, and the codes with which they have failed.
  std::map<size_t, int> lost_;
  int restarts_left_;
  std::vector<int> lives_;
  int exit_code_ = 0;
  std::optional<Instant> first_signal_;
};

}  // namespace phalanx::runtime

#endif  // PHALANX_CLI_LAUNCH_LAUNCH_PLAN_H_
