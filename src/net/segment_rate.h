// SegmentRate: how fast a sender delivers while it has something to deliver, from the times at
// which segments were complete.
//
// The time from one segment to the next counts, except before a segment whose sender had nothing
// to send: that time measures the sender's own sender. A value; one loop.
#ifndef PHALANX_NET_SEGMENT_RATE_H_
#define PHALANX_NET_SEGMENT_RATE_H_

#include <cstdint>

#include "absl/time/time.h"
#include "src/common/instant.h"

namespace phalanx::net {

class SegmentRate {
 public:
  // Below this nothing is said: a few segments that sat in one kernel buffer tell nothing.
  static constexpr uint64_t kLeastBytes = uint64_t{256} * 1024;

  void Segment(Instant complete, uint64_t bytes, bool sender_was_starved) {
    if (any_ && !sender_was_starved) {
      bytes_ += bytes;
      time_ += complete - last_;
    }
    any_ = true;
    last_ = complete;
  }

  // 0 when too little was seen.
  double bytes_per_second() const {
    if (bytes_ < kLeastBytes || time_ <= absl::ZeroDuration()) return 0;
    return static_cast<double>(bytes_) / absl::ToDoubleSeconds(time_);
  }

 private:
  bool any_ = false;
  Instant last_;
  uint64_t bytes_ = 0;
  absl::Duration time_;
};

}  // namespace phalanx::net

#endif  // PHALANX_NET_SEGMENT_RATE_H_
