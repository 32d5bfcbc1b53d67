// The seam for time and scheduling: one event loop as the code that runs on it sees it.
//
// Implementations: net::EventLoop (a thread over Asio) and sim::SimExecutor (simulated time, one
// thread for the whole cluster). Both pass the suite in executor_conformance.h.
//
// Thread rule: `Post` may be called from any thread; everything else only from a task that runs on
// this executor. Tasks of one executor run one at a time, in the order they were posted, and never
// inside `Post` itself. After the executor has shut down, tasks are destroyed instead of run; their
// destructors must be safe then.
#ifndef PHALANX_COMMON_EXECUTOR_H_
#define PHALANX_COMMON_EXECUTOR_H_

#include <cstdint>

#include "absl/functional/any_invocable.h"
#include "src/common/instant.h"

namespace phalanx {

using Task = absl::AnyInvocable<void()>;
// 0 is never a timer. Ids are not reused within an executor's life.
using TimerId = uint64_t;

class Executor {
 public:
  virtual ~Executor() = default;

  virtual void Post(Task task) = 0;

  // The time, read once per turn of the loop: constant while one task runs. Never goes back.
  virtual Instant Now() const = 0;

  // Runs `task` in a turn whose Now() >= `when`, once. Timers due in the same turn run in order of
  // (when, id).
  virtual TimerId RunAt(Instant when, Task task) = 0;

  // After return the timer's task does not run any more and has been destroyed (at the latest at
  // the end of this turn). Unknown, fired and cancelled ids are ignored.
  virtual void Cancel(TimerId id) = 0;

  // True when called from a task of this executor.
  virtual bool InLoop() const = 0;
};

}  // namespace phalanx

#endif  // PHALANX_COMMON_EXECUTOR_H_
