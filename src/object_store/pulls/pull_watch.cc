#include "src/object_store/pulls/pull_watch.h"

#include <algorithm>
#include <optional>
#include <utility>

namespace phalanx::object_store {
namespace {

// A link has slowed down if two looks together saw less than this share of the rate before.
constexpr double kSlowedShare = 0.25;
// Of these, the sender had bytes for this long at least: the shard allows for bursts.
constexpr absl::Duration kLeastBusy = absl::Milliseconds(25);
// The link is silent after this time without a byte, and after twice its longest silence so far. It
// is reported again a tick later, when every node has reported, and then ever more seldom.
constexpr absl::Duration kLeastSilence = absl::Milliseconds(30);
// A rate is reported once more, of this time.
constexpr absl::Duration kLongerWindow = absl::Milliseconds(80);
// The weight of the latest rate in the usual one.
constexpr double kWeight = 0.25;

double BytesPerSecond(uint64_t bytes, absl::Duration time) {
  return time > absl::ZeroDuration() ? static_cast<double>(bytes) / absl::ToDoubleSeconds(time) : 0;
}

}  // namespace

PullWatch::PullWatch(Instant now, uint64_t present)
    : next_look_(now + kTick), last_{now, {present, 0}}, before_last_(last_), bytes_at_(now) {}

PullWatch::Report PullWatch::Since(const Mark& mark, Instant now, const Seen& seen) {
  const Seen& before = mark.seen;
  return Report{.window = now - mark.at,
                .bytes_per_second = BytesPerSecond(seen.present - before.present, now - mark.at),
                .starved_ns = seen.starved_ns - std::min(seen.starved_ns, before.starved_ns)};
}

PullWatch::Report PullWatch::Look(Instant now, const Seen& seen) {
  const absl::Duration passed = now - last_.at;
  const double rate = BytesPerSecond(seen.present - last_.seen.present, passed);
  // The node itself was stopped or busy: the time says nothing about the link.
  const bool late = passed > tick_ + kTick;
  const bool first_bytes = usual_ == 0 && rate > 0;
  const bool recovered = rate > 0 && silent_again_ > absl::ZeroDuration();
  Report report = Since(before_last_, now, seen);
  bool news = false;
  if (first_bytes) {
    // Not counted: they hold what buffers let through.
    usual_ = last_rate_ = rate;
  } else if (recovered) {
    // Nor these: with the silence before them, they would be a slow link's.
    longest_silence_ = std::max(longest_silence_, last_.at - bytes_at_);
    silent_again_ = absl::ZeroDuration();
  } else if (rate > 0 && !late) {
    const bool measured = measured_;
    if (const std::optional<Report> slow = SlowedDown(report)) {
      report = *slow;
      news = true;
    } else {
      news = RateIsNews(report, rate);
    }
    if (!measured) measured_at_ = Mark{now, seen};
    if (!news && LongerRateIsDue(Since(measured_at_, now, seen))) {
      report = Since(measured_at_, now, seen);
      news = true;
    }
  } else if (!late) {
    news = SilenceIsNews(now - bytes_at_);
    report.silent = now - bytes_at_;
  }
  // A rate of this pause, which is no link's, would be a slow one.
  if (recovered || late) measured_longer_ = measured_longer_ || measured_;
  before_last_ = first_bytes || recovered || late ? Mark{now, seen} : last_;
  last_ = {now, seen};
  if (rate > 0 || late) bytes_at_ = now;
  if (rate > 0) {
    tick_ = kTick;
  } else if (usual_ > 0) {
    tick_ = std::clamp<absl::Duration>((now - bytes_at_) / 3, kTick / 2, kMaxTick);
  } else {
    tick_ = std::min(2 * tick_, kMaxTick);
  }
  next_look_ = now + tick_;
  return news ? report : Report();
}

std::optional<PullWatch::Report> PullWatch::SlowedDown(Report report) {
  const absl::Duration window = report.window;
  // Before the link slowed down, the sender had perhaps to wait for each of its bytes.
  report.window -= absl::Nanoseconds(report.starved_ns);
  if (report.window < kLeastBusy || 2 * report.window < window) return std::nullopt;
  report.bytes_per_second *= absl::FDivDuration(window, report.window);
  report.starved_ns = 0;
  const bool proof = usual_ * absl::ToDoubleSeconds(report.window) >= kPaceProofBytes;
  if (!proof || report.bytes_per_second >= kSlowedShare * usual_) return std::nullopt;
  measured_ = true;
  // From now on this is the usual rate: one report for each time that the link slows down.
  usual_ = last_rate_ = report.bytes_per_second;
  return report;
}

bool PullWatch::RateIsNews(const Report& report, double last_rate) {
  // Without the last look: the time before a slow part says what the link can do.
  usual_ += kWeight * (std::exchange(last_rate_, last_rate) - usual_);
  const bool starved = absl::Nanoseconds(report.starved_ns) * 10 >= report.window;
  if (report.window < 2 * kTick) return false;
  // Once: the link can do at least this.
  if (starved) return !measured_ && !std::exchange(bounded_, true);
  if (std::exchange(measured_, true)) return false;
  usual_ = last_rate_ = report.bytes_per_second;
  return true;
}

bool PullWatch::LongerRateIsDue(const Report& report) {
  if (!measured_ || measured_longer_ || report.window < kLongerWindow) return false;
  measured_longer_ = true;
  return absl::Nanoseconds(report.starved_ns) * 10 < report.window;
}

bool PullWatch::TooLongForTheLink(absl::Duration quiet) const {
  return quiet >= kLeastSilence && usual_ * absl::ToDoubleSeconds(quiet) >= kPaceProofBytes;
}

absl::Duration PullWatch::Quiet(Instant now) const {
  const absl::Duration quiet = now - bytes_at_;
  return TooLongForTheLink(quiet) ? quiet : absl::ZeroDuration();
}

bool PullWatch::SilenceIsNews(absl::Duration quiet) {
  if (silent_again_ > absl::ZeroDuration()) {
    if (quiet < silent_again_) return false;
    silent_again_ = 2 * quiet;
    return true;
  }
  const bool silent = TooLongForTheLink(quiet) && quiet >= 2 * longest_silence_;
  if (silent) silent_again_ = quiet + kTick;
  return silent;
}

}  // namespace phalanx::object_store
