#include "src/cli/launch/launch_plan.h"

#include <signal.h>

#include "src/common/check.h"

namespace phalanx::runtime {

LaunchPlan::Next LaunchPlan::Ended(size_t task, int code, bool missed) {
  PHALANX_CHECK(running_ > 0, "only a started task ends");
  --running_;
  const bool spare = IsSpare(task);
  if (code == 0 && !spare) {
    --others_left_;
    if (task >= roles_.servers) --workers_left_;
  }
  if (missed && Stop(kMissedDeath)) return Next::kStop;
  // Tasks that end by the launch's own signal have not failed.
  if (code == 0 || stopping() || (spare && spares_end_)) return Next::kNothing;
  const bool replaceable = spare || (task < roles_.servers && restarts_left_ == 0);
  if (replaceable && spares_left_ > 0) {
    --spares_left_;
    if (!spare) --others_left_;
    return Next::kSpare;
  }
  if (restarts_left_ == 0) {
    Stop(code);
    return Next::kStop;
  }
  --restarts_left_;
  ++lives_[task];
  return Next::kStart;
}

// A spare with a part ends by itself, as the server in its place would.
bool LaunchPlan::TakeOnlySpares() {
  const bool only = roles_.alone && running_ > 0 && others_left_ == 0 && running_ == spares_left_;
  if (!only || stopping() || spares_end_) return false;
  spares_end_ = true;
  return true;
}

bool LaunchPlan::Stop(int code) {
  if (stopping()) return false;
  phase_ = Phase::kStopping;
  exit_code_ = code;
  return true;
}

LaunchPlan::Next LaunchPlan::Signalled(int number, Instant now) {
  if (first_signal_) {
    return number == SIGINT || now - *first_signal_ >= kOneStop ? Next::kKill : Next::kNothing;
  }
  first_signal_ = now;
  return Stop(128 + number) ? Next::kStop : Next::kNothing;
}

}  // namespace phalanx::runtime
