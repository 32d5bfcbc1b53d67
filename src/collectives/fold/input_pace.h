// InputPace: when a fold reports how the bytes of an input arrive that it pulls, and what.
//
//   first bytes ──► rate ──► rate, if it falls, or is twice the reported one again ──► ...
//                     │
//                     └── silence ──► the same a moment later, then after ever longer times ──► its
//                     end
//
// A silence is that of a pull that has delivered bytes: a sender that is connected to for the first
// time, or that has no memory yet, is not silent. A pull without bytes is reported as a wait if the
// fold has handed on bytes before: the node above it must not take the fold itself for silent.
//
// The shard takes a rate to last until it hears of another. So since a report no more than twice as
// many bytes arrive as it says, or the next report is due: also one at the end of the pull.
//
// Pure. Owned by NodeFold, one per running pull; the control loop only.
#ifndef PHALANX_COLLECTIVES_FOLD_INPUT_PACE_H_
#define PHALANX_COLLECTIVES_FOLD_INPUT_PACE_H_

#include <cstdint>
#include <optional>

#include "absl/time/time.h"
#include "src/common/time/instant.h"
#include "src/object_store/pulls/pull_watch.h"

namespace phalanx::collectives {

class InputPace {
 public:
  using Seen = object_store::PullWatch::Seen;

  // What to report. Without a window and a silence: what was reported is over.
  struct News {
    absl::Duration window = absl::ZeroDuration();
    double bytes_per_second = 0;  // of the window; before the silence, if there is one
    uint64_t starved_ns = 0;      // of the window
    absl::Duration silent = absl::ZeroDuration();
  };

  // The first wait without bytes is reported after this time, the next ones after twice as long.
  static constexpr absl::Duration kLeastWait = absl::Milliseconds(60);

  // The pull begins.
  InputPace(Instant now, uint64_t present)
      : began_(now),
        began_with_(present),
        watch_(now, present),
        last_{now, {present, 0}},
        before_last_(last_) {}

  Instant next_look() const { return watch_.next_look(); }
  // `handed_on`: the fold has computed bytes, and lacks this input for more. REQUIRES: `now` does
  // not decrease.
  std::optional<News> Look(Instant now, const Seen& seen, bool handed_on);
  // The pull has ended, with so many bytes. REQUIRES: as for Look.
  std::optional<News> End(Instant now, uint64_t present);

 private:
  // A look and what it saw.
  struct Mark {
    Instant at;
    Seen seen;
  };

  // Returns true if far more bytes have come since the last report than at the rate that it named.
  bool Rose(Instant now, uint64_t present) const;
  News RateOf(const News& news, Instant now, const Seen& seen);

  const Instant began_;
  const uint64_t began_with_;
  object_store::PullWatch watch_;
  Mark last_;
  Mark before_last_;
  // The last report of a rate, if there is one.
  std::optional<Mark> reported_;
  double reported_rate_ = 0;
  uint64_t present_at_silence_ = 0;
  bool silent_ = false;  // a silence was reported that has not ended
  absl::Duration next_wait_ = kLeastWait;
};

}  // namespace phalanx::collectives

#endif  // PHALANX_COLLECTIVES_FOLD_INPUT_PACE_H_
