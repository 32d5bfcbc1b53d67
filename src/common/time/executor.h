// The seam for time and scheduling: the interface of an event loop for the code that runs on it.
//
// Implementations: net::EventLoop (a thread over Asio) and sim::SimExecutor (simulated time, one
// thread for the whole cluster). Both pass the suite in executor_conformance.h.
//
// Thread rule: any thread may call `Post`. Only a task that runs on this executor may call the
// other methods. An executor runs its tasks one at a time, in the order of their `Post`, and never
// inside `Post` itself. After shutdown the executor destroys tasks instead of running them; the
// destructors of tasks must be safe then.
#ifndef PHALANX_COMMON_TIME_EXECUTOR_H_
#define PHALANX_COMMON_TIME_EXECUTOR_H_

#include <cstdint>

#include "absl/functional/any_invocable.h"
#include "src/common/time/instant.h"

namespace phalanx {

using Task = absl::AnyInvocable<void()>;
// No timer has the id 0. An executor does not reuse ids.
using TimerId = uint64_t;

class Executor {
 public:
  virtual ~Executor() = default;

  virtual void Post(Task task) = 0;

  // Returns the time, which the loop reads once per turn: constant while one task runs. Never
  // decreases.
  virtual Instant Now() const = 0;

  // Returns the time now, also within a task. For the few decisions that must not rest on a time
  // from before the process was stopped.
  virtual Instant ReadClock() const { return Now(); }

  // Runs `task` once, in a turn whose Now() >= `when`. Timers that are due in the same turn run in
  // the order of (when, id).
  virtual TimerId RunAt(Instant when, Task task) = 0;

  // After Cancel returns, the timer's task does not run. The executor destroys the task at the end
  // of this turn at the latest. Cancel ignores unknown, fired and cancelled ids.
  virtual void Cancel(TimerId id) = 0;

  // True if a task of this executor is the caller.
  virtual bool InLoop() const = 0;
};

}  // namespace phalanx

#endif  // PHALANX_COMMON_TIME_EXECUTOR_H_
