// PullTiming: when the answers to one pull arrived, and what follows from it: the latency, the rate
// of the link, the time without bytes.
//
// Part of a PullReceiver; one loop.
#ifndef PHALANX_NET_PULL_PULL_TIMING_H_
#define PHALANX_NET_PULL_PULL_TIMING_H_

#include <algorithm>
#include <cstdint>
#include <utility>

#include "absl/time/time.h"
#include "src/common/time/instant.h"
#include "src/net/pull/segment_rate.h"

namespace phalanx::net {

class PullTiming {
 public:
  // The receiver sends its request.
  void Begin(Instant now) { requested_at_ = last_byte_ = last_segment_ = now; }

  // A byte of any frame has arrived.
  void ByteArrived(Instant now) {
    any_byte_ = true;
    last_byte_ = now;
  }
  // A control frame has arrived.
  void AnswerArrived(Instant now) {
    // Zero means that there was no answer, but the clock does not advance within a turn.
    if (first_answer_ == absl::ZeroDuration()) {
      first_answer_ = std::max(now - requested_at_, absl::Nanoseconds(1));
    }
  }
  // A whole segment has arrived. Returns the time since the one before, or since the request.
  absl::Duration SegmentArrived(Instant now, uint64_t bytes, bool sender_was_starved) {
    rate_.Segment(now, bytes, sender_was_starved);
    return now - std::exchange(last_segment_, now);
  }

  bool any_byte() const { return any_byte_; }
  // The times of the last byte and of the last segment; the time of the request if there was none.
  Instant last_byte() const { return last_byte_; }
  Instant last_segment() const { return last_segment_; }
  // From the request to the first control frame; zero if there was none.
  absl::Duration first_answer() const { return first_answer_; }
  // As SegmentRate: zero if it is unknown.
  double bytes_per_second() const { return rate_.bytes_per_second(); }

 private:
  Instant requested_at_;
  Instant last_byte_;
  Instant last_segment_;
  bool any_byte_ = false;
  absl::Duration first_answer_;
  SegmentRate rate_;
};

}  // namespace phalanx::net

#endif  // PHALANX_NET_PULL_PULL_TIMING_H_
