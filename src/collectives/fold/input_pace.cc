#include "src/collectives/fold/input_pace.h"

#include <utility>

namespace phalanx::collectives {

std::optional<InputPace::News> InputPace::Look(Instant now, const Seen& seen, bool handed_on) {
  const object_store::PullWatch::Report report = watch_.Look(now, seen);
  if (silent_ && seen.present > present_at_silence_) return End();
  if (report.silent > absl::ZeroDuration()) {
    silent_ = true;
    present_at_silence_ = seen.present;
    return News{.bytes_per_second = watch_.usual(), .silent = report.silent};
  }
  if (report.window > absl::ZeroDuration()) {
    return News{report.window, report.bytes_per_second, report.starved_ns, absl::ZeroDuration()};
  }
  const absl::Duration waited = now - began_;
  if (!handed_on || seen.present > began_with_ || waited < next_wait_) return std::nullopt;
  next_wait_ = 2 * waited;
  silent_ = true;
  present_at_silence_ = seen.present;
  return News{.silent = waited};
}

std::optional<InputPace::News> InputPace::End() {
  if (!std::exchange(silent_, false)) return std::nullopt;
  return News{};
}

}  // namespace phalanx::collectives
