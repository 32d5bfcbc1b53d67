// LoopTimer and LoopSignal: the two ways in which a rim requests a later callback from its loop.
// Both are safe to destroy at any time.
//
// Thread rule: created, used and destroyed on their executor, which outlives them. The callback
// runs there; it can use its timer or signal, but not destroy it.
#ifndef PHALANX_DIRECTORY_SESSION_LOOP_TIMER_H_
#define PHALANX_DIRECTORY_SESSION_LOOP_TIMER_H_

#include <memory>
#include <utility>

#include "absl/functional/any_invocable.h"
#include "src/common/time/executor.h"
#include "src/common/time/instant.h"

namespace phalanx::directory {

// Calls back at or before the requested deadline. A deadline that moves later costs nothing: the
// callback checks what is due and requests the next deadline. The callback gets the time at which
// it was due, so that it can notice a pause of the whole process.
class LoopTimer {
 public:
  LoopTimer(Executor& executor, absl::AnyInvocable<void(Instant due)> callback)
      : executor_(executor), callback_(std::move(callback)) {}
  ~LoopTimer() { Disarm(); }
  LoopTimer(const LoopTimer&) = delete;
  LoopTimer& operator=(const LoopTimer&) = delete;

  // The callback runs at `when` or before.
  void Ensure(Instant when) {
    if (when >= armed_) return;
    Disarm();
    armed_ = when;
    id_ = executor_.RunAt(when, [this] {
      id_ = 0;
      callback_(std::exchange(armed_, Instant::Infinite()));
    });
  }

 private:
  void Disarm() {
    if (id_ != 0) executor_.Cancel(id_);
    id_ = 0;
    armed_ = Instant::Infinite();
  }

  Executor& executor_;
  absl::AnyInvocable<void(Instant due)> callback_;
  TimerId id_ = 0;
  Instant armed_ = Instant::Infinite();
};

// Calls back once, in a later turn, for any number of earlier Raise calls.
class LoopSignal {
 public:
  LoopSignal(Executor& executor, absl::AnyInvocable<void()> callback)
      : executor_(executor), state_(std::make_shared<State>()) {
    state_->callback = std::move(callback);
  }
  ~LoopSignal() { state_->callback = nullptr; }
  LoopSignal(const LoopSignal&) = delete;
  LoopSignal& operator=(const LoopSignal&) = delete;

  void Raise() {
    if (std::exchange(state_->raised, true)) return;
    executor_.Post([state = state_] {
      state->raised = false;
      if (state->callback) state->callback();
    });
  }

 private:
  struct State {
    absl::AnyInvocable<void()> callback;
    bool raised = false;
  };

  Executor& executor_;
  const std::shared_ptr<State> state_;
};

}  // namespace phalanx::directory

#endif  // PHALANX_DIRECTORY_SESSION_LOOP_TIMER_H_
