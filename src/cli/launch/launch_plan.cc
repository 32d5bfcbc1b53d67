#include "src/cli/launch/launch_plan.h"

#include <signal.h>

#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "src/common/check.h"

namespace phalanx::runtime {

namespace {

constexpr int kKilled = 128 + SIGKILL;
// Of a launch with a declared death that has not happened.
constexpr int kMissedDeath = 1;

}  // namespace

absl::StatusOr<DeclaredDeaths> ParseDeaths(const std::vector<std::string>& texts, int first,
                                           int tasks, int world) {
  DeclaredDeaths deaths(static_cast<size_t>(tasks));
  for (const std::string& text : texts) {
    const std::vector<std::string> parts = absl::StrSplit(text, '@');
    int task = 0;
    uint64_t call = 0;
    if (parts.size() != 2 || !absl::SimpleAtoi(parts[0], &task) ||
        !absl::SimpleAtoi(parts[1], &call) || call == 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("--fail: expected TASK@CALL like 3@57, got \"", text, "\""));
    }
    if (task < 0 || task >= world) {
      return absl::InvalidArgumentError(absl::StrCat("--fail: there is no task ", task,
                                                     " in a world of ", world, ": \"", text, "\""));
    }
    if (task >= first && task - first < tasks) {
      deaths[static_cast<size_t>(task - first)].push_back(call);
    }
  }
  return deaths;
}

LaunchPlan::LaunchPlan(size_t tasks, int restarts, DeclaredDeaths deaths)
    : restarts_left_(restarts), lives_(tasks, 0), deaths_(std::move(deaths)) {}

std::optional<uint64_t> LaunchPlan::death(size_t task) const {
  const auto life = static_cast<size_t>(lives_[task]);
  if (task >= deaths_.size() || life >= deaths_[task].size()) return std::nullopt;
  return deaths_[task][life];
}

bool LaunchPlan::MissedDeath(size_t task, int code, bool declared) const {
  const bool died = code == kKilled && declared;
  return !stopping() && !died && death(task).has_value();
}

LaunchPlan::Next LaunchPlan::Ended(size_t task, int code, bool declared) {
  PHALANX_CHECK(running_ > 0, "only a started task ends");
  --running_;
  if (MissedDeath(task, code, declared)) {
    Stop(kMissedDeath);
    return Next::kStop;
  }
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

LaunchPlan::Next LaunchPlan::Signalled(int number, Instant now) {
  if (first_signal_) {
    return number == SIGINT || now - *first_signal_ >= kOneStop ? Next::kKill : Next::kNothing;
  }
  first_signal_ = now;
  return Stop(128 + number) ? Next::kStop : Next::kNothing;
}

}  // namespace phalanx::runtime
