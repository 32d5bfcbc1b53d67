// SegmentRate: measures how fast a link delivers while its sender has bytes to send, from the times
// at which segments were complete.
//
// Only long busy runs count: consecutive segments whose sender always had bytes, without the first
// kSettleBytes of the run. Before that, the time between two segments measures the sender's own
// sender (a relay waits for its bytes and then sends at once what arrived), or how fast buffers on
// the way fill and drain. A value; one loop.
#ifndef PHALANX_NET_PULL_SEGMENT_RATE_H_
#define PHALANX_NET_PULL_SEGMENT_RATE_H_

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include "absl/time/time.h"
#include "src/common/time/instant.h"

namespace phalanx::net {

class SegmentRate {
 public:
  // The start of a busy run that is not measured: more than the burst of a shaper and the buffers
  // of the kernel hold.
  static constexpr uint64_t kSettleBytes = uint64_t{256} * 1024;
  // The size of one measurement. It doubles whenever kWindows of them are full.
  static constexpr uint64_t kFirstWindowBytes = uint64_t{256} * 1024;
  static constexpr size_t kWindows = 64;

  void Segment(Instant complete, uint64_t bytes, bool sender_was_starved) {
    if (sender_was_starved) run_bytes_ = window_filled_ = 0;
    if (run_bytes_ < kSettleBytes) {
      run_bytes_ += bytes;
      window_start_ = complete;
      return;
    }
    window_filled_ += bytes;
    // All segments of one turn of the loop have the same time, which would give a window of no
    // duration.
    if (window_filled_ < window_bytes_ || complete == window_start_) return;
    AddWindow((complete - window_start_) * (static_cast<double>(window_bytes_) / window_filled_));
    window_start_ = complete;
    window_filled_ = 0;
  }

  // Returns the median of all windows: a receiver that pauses and then reads the accumulated bytes
  // sees a few windows that are too slow and a few that are too fast. Returns 0 if there is no full
  // window.
  double bytes_per_second() const {
    if (windows_ == 0) return 0;
    std::array<absl::Duration, kWindows> sorted = times_;
    const auto middle = sorted.begin() + windows_ / 2;
    std::nth_element(sorted.begin(), middle, sorted.begin() + windows_);
    if (*middle <= absl::ZeroDuration()) return 0;
    return static_cast<double>(window_bytes_) / absl::ToDoubleSeconds(*middle);
  }

 private:
  void AddWindow(absl::Duration time) {
    times_[windows_++] = time;
    if (windows_ < kWindows) return;
    for (size_t i = 0; i < kWindows / 2; ++i) times_[i] = times_[2 * i] + times_[2 * i + 1];
    windows_ = kWindows / 2;
    window_bytes_ *= 2;
  }

  uint64_t run_bytes_ = 0;  // of the current busy run, up to kSettleBytes
  uint64_t window_bytes_ = kFirstWindowBytes;
  uint64_t window_filled_ = 0;
  Instant window_start_;
  std::array<absl::Duration, kWindows> times_;
  size_t windows_ = 0;
};

}  // namespace phalanx::net

#endif  // PHALANX_NET_PULL_SEGMENT_RATE_H_
