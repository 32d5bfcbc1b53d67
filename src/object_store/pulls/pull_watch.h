// PullWatch: when the receiver of a pull reports to the shard earlier than usual: soon after the
// first bytes, as soon as the sender was not starved, once more after twice that time, when the
// link slows down, and when it falls silent.
//
// The link itself is the measure: what is slow, and which gap is long, follows from what the link
// did a moment ago. The time for which the sender is starved says nothing about the link. Silence
// is no proof against the sender, which may have no bytes itself; the shard compares the reports of
// several nodes.
//
// Pure. Owned by PullRunner, one per running pull; the control loop only.
#ifndef PHALANX_OBJECT_STORE_PULLS_PULL_WATCH_H_
#define PHALANX_OBJECT_STORE_PULLS_PULL_WATCH_H_

#include <cstdint>
#include <optional>

#include "absl/time/time.h"
#include "src/common/pace_rules.h"
#include "src/common/time/instant.h"

namespace phalanx::object_store {

class PullWatch {
 public:
  // The time between two looks while bytes arrive; half of it when they have just ceased. Without
  // bytes it grows up to kMaxTick.
  static constexpr absl::Duration kTick = kPaceTick;
  static constexpr absl::Duration kMaxTick = absl::Milliseconds(160);

  // What the receiver knows at a look: the bytes that it has, and how long the sender had none.
  struct Seen {
    uint64_t present = 0;
    uint64_t starved_ns = 0;
  };
  // What to report; `window` is zero if there is nothing to report.
  struct Report {
    absl::Duration window = absl::ZeroDuration();
    double bytes_per_second = 0;
    uint64_t starved_ns = 0;
    absl::Duration silent = absl::ZeroDuration();
  };

  // The pull begins.
  PullWatch(Instant now, uint64_t present);

  Instant next_look() const { return next_look_; }
  // How long there has been no byte, if that is more than the link needs for them; zero otherwise.
  // The sender may lack them: a rate of this time says nothing about the link.
  absl::Duration Quiet(Instant now) const;
  // The rate a moment ago; 0 before the first bytes.
  double usual() const { return usual_; }
  // REQUIRES: `now` does not decrease.
  Report Look(Instant now, const Seen& seen);

 private:
  // One look and the time before it.
  struct Mark {
    Instant at;
    Seen seen;
  };

  static Report Since(const Mark& mark, Instant now, const Seen& seen);
  // Returns what to report of the last two looks, without the time for which the sender had no
  // bytes, if the link did much less in them than before.
  std::optional<Report> SlowedDown(Report report);
  // Returns true if the rate of the last two looks is to be reported, for the first time.
  bool RateIsNews(const Report& report, double last_rate);
  // Returns true, once, if `report` is of enough time since the first report of the link's rate.
  bool LongerRateIsDue(const Report& report);
  bool SilenceIsNews(absl::Duration quiet);
  bool TooLongForTheLink(absl::Duration quiet) const;

  absl::Duration tick_ = kTick;
  Instant next_look_;
  Mark last_;                     // the look before
  Mark before_last_;              // the one before that
  Instant bytes_at_;              // the last look at which new bytes were seen
  bool measured_ = false;         // a rate was reported
  Mark measured_at_;              // when that was
  bool measured_longer_ = false;  // the rate since then was reported, too
  bool bounded_ = false;          // a rate was reported for which the sender lacked bytes
  // The rate a moment ago: of the looks before the last two, the later the more. 0 before the first
  // bytes.
  double usual_ = 0;
  double last_rate_ = 0;
  // When a silence that was reported is reported again; zero if the link is not silent.
  absl::Duration silent_again_;
  // The longest silence from which the link recovered.
  absl::Duration longest_silence_;
};

}  // namespace phalanx::object_store

#endif  // PHALANX_OBJECT_STORE_PULLS_PULL_WATCH_H_
