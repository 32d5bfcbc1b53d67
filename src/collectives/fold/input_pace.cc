#include "src/collectives/fold/input_pace.h"

#include <algorithm>
#include <utility>

#include "src/common/pace_rules.h"

namespace phalanx::collectives {

std::optional<InputPace::News> InputPace::Look(Instant now, const Seen& seen, bool handed_on) {
  const object_store::PullWatch::Report report = watch_.Look(now, seen);
  const Mark since = std::exchange(before_last_, std::exchange(last_, Mark{now, seen}));
  if (silent_ && seen.present > present_at_silence_) {
    silent_ = false;
    return News{};
  }
  if (report.silent > absl::ZeroDuration()) {
    silent_ = true;
    present_at_silence_ = seen.present;
    // The silence is what counts now, and its end.
    reported_.reset();
    return News{.bytes_per_second = watch_.usual(), .silent = report.silent};
  }
  if (report.window > absl::ZeroDuration()) {
    return RateOf({report.window, report.bytes_per_second, report.starved_ns}, now, seen);
  }
  if (reported_ && now - reported_->at >= kPaceRiseWindow && Rose(now, seen.present)) {
    // Of the last looks only: the time before them was slower.
    const double bytes = static_cast<double>(seen.present - since.seen.present);
    const uint64_t starved = seen.starved_ns - std::min(seen.starved_ns, since.seen.starved_ns);
    const absl::Duration window = now - since.at;
    return RateOf({window, bytes / absl::ToDoubleSeconds(window), starved}, now, seen);
  }
  const absl::Duration waited = now - began_;
  if (!handed_on || seen.present > began_with_ || waited < next_wait_) return std::nullopt;
  next_wait_ = 2 * waited;
  silent_ = true;
  present_at_silence_ = seen.present;
  return News{.silent = waited};
}

std::optional<InputPace::News> InputPace::End(Instant now, uint64_t present) {
  if (!silent_ && !Rose(now, present)) return std::nullopt;
  silent_ = false;
  reported_.reset();
  return News{};
}

bool InputPace::Rose(Instant now, uint64_t present) const {
  if (!reported_) return false;
  const double passed = absl::ToDoubleSeconds(now - reported_->at);
  const double bytes = static_cast<double>(present) - static_cast<double>(reported_->seen.present);
  return bytes > kPaceRise * reported_rate_ * passed;
}

InputPace::News InputPace::RateOf(const News& news, Instant now, const Seen& seen) {
  reported_ = Mark{now, seen};
  reported_rate_ = news.bytes_per_second;
  return news;
}

}  // namespace phalanx::collectives
