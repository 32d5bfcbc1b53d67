#include "src/cli/launch/launch_plan.h"

#include "src/common/check.h"

namespace phalanx::runtime {

LaunchPlan::LaunchPlan(size_t tasks, int restarts) : restarts_left_(restarts), lives_(tasks, 0) {}

LaunchPlan::Next LaunchPlan::Ended(size_t task, int code) {
  PHALANX_CHECK(running_ > 0, "only a started task ends");
  --running_;
  // Tasks that end by the launch's own signal have not failed.
  if (code == 0 || stopping()) return Next::kNothing;
  if (restarts_left_ == 0) {
    Stop(code);
    return Next::kStop;
  }
  --restarts_left_;
  ++lives_[task];
  return Next::kStart;
}

bool LaunchPlan::Stop(int code) {
  if (stopping()) return false;
  phase_ = Phase::kStopping;
  exit_code_ = code;
  return true;
}

}  // namespace phalanx::runtime
