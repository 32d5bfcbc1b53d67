#include "src/cli/launch/launch_plan.h"

#include <signal.h>

#include "src/common/check.h"

namespace phalanx::runtime {

LaunchPlan::Next LaunchPlan::Ended(size_t task, int code, bool missed, const Parts& parts) {
  PHALANX_CHECK(running_ > 0, "only a started task ends");
  --running_;
  const bool spare = IsSpare(task);
  if (code == 0 && !spare) {
    --others_left_;
    if (task >= roles_.servers) --workers_left_;
  }
  if (spare) NoteParts(parts, code);
  if (missed && Stop(kMissedDeath)) return Next::kStop;
  // Tasks that end by the launch's own signal have not failed.
  if (code == 0 || stopping() || (spare && spares_end_)) return Next::kNothing;
  const bool over = roles_.alone && workers_left_ == 0;
  const bool replaceable = spare || (task < roles_.servers && restarts_left_ == 0 && !over);
  if (replaceable && spares_left_ > 0) {
    --spares_left_;
    if (!spare) {
      --others_left_;
      lost_[task] = code;
    }
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

// With other launches, a spare of theirs can have the part.
std::optional<LaunchPlan::Lost> LaunchPlan::lost() const {
  const bool others = !roles_.alone || roles_.spares < roles_.spares_of_job;
  if (others || lost_.empty()) return std::nullopt;
  return Lost{.server = lost_.begin()->first, .code = lost_.begin()->second};
}

// A server of the launch that is thrown out by its own next life is not lost.
void LaunchPlan::NoteParts(const Parts& parts, int code) {
  if (!parts.has_value()) {
    if (code == 0 && !lost_.empty()) lost_.erase(lost_.begin());
    return;
  }
  for (const int part : *parts) {
    const auto lost = lost_.find(static_cast<size_t>(part));
    if (lost == lost_.end()) continue;
    if (code == 0) {
      lost_.erase(lost);
    } else {
      lost->second = code;
    }
  }
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
