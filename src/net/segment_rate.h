// SegmentRate: how fast a link delivers while its sender has something to deliver, from the times
// at which segments were complete.
//
// Only long busy runs count: segments one after another whose sender was never without bytes, and
// of these what follows the first kSettleBytes. Before that the time from one segment to the next
// measures the sender's own sender (a relay waits for its bytes, then sends what came at once), or
// how fast buffers on the way are filled and emptied. A value; one loop.
#ifndef PHALANX_NET_SEGMENT_RATE_H_
#define PHALANX_NET_SEGMENT_RATE_H_

#include <cstdint>

#include "absl/time/time.h"
#include "src/common/instant.h"

namespace phalanx::net {

class SegmentRate {
 public:
  // More than a shaper's burst and the kernel's buffers hold.
  static constexpr uint64_t kSettleBytes = uint64_t{256} * 1024;
  // Below this nothing is said.
  static constexpr uint64_t kLeastBytes = uint64_t{256} * 1024;

  void Segment(Instant complete, uint64_t bytes, bool sender_was_starved) {
    if (sender_was_starved) run_bytes_ = 0;
    if (run_bytes_ >= kSettleBytes) {
      bytes_ += bytes;
      time_ += complete - last_;
    }
    run_bytes_ += bytes;
    last_ = complete;
  }

  // 0 when too little was seen.
  double bytes_per_second() const {
    if (bytes_ < kLeastBytes || time_ <= absl::ZeroDuration()) return 0;
    return static_cast<double>(bytes_) / absl::ToDoubleSeconds(time_);
  }

 private:
  Instant last_;
  uint64_t run_bytes_ = 0;  // of the busy run under way
  uint64_t bytes_ = 0;
  absl::Duration time_;
};

}  // namespace phalanx::net

#endif  // PHALANX_NET_SEGMENT_RATE_H_
