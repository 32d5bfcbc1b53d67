// UnsentLimit: how many bytes of a connection can wait unsent in the kernel, adapted to the link.
//
// With too few, the link idles between two turns of the loop. With too many, bytes age in the
// kernel, and a control frame waits behind all of them. The limit is about twice the measured rate
// times the round trip.
//
// Part of a PullSender; one loop.
#ifndef PHALANX_NET_PUSH_UNSENT_LIMIT_H_
#define PHALANX_NET_PUSH_UNSENT_LIMIT_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>

#include "absl/time/time.h"

namespace phalanx::net {

class UnsentLimit {
 public:
  // The limit before the first measurement, and the bounds of the adapted one.
  static constexpr size_t kFirstBytes = size_t{256} * 1024;
  static constexpr size_t kLeastBytes = size_t{128} * 1024;
  static constexpr size_t kMostBytes = size_t{8} << 20;

  // The kernel has taken `bytes` bytes.
  void Wrote(size_t bytes) { bytes_ += bytes; }
  // The sender had nothing that it could send for a part of this interval.
  void Waited() { waited_ = true; }

  // Ends an interval of this length and begins the next one. Returns the new limit, or nullopt if
  // the interval measures nothing: the sender waited in it, or the round trip is unknown (0).
  std::optional<size_t> EndInterval(absl::Duration length, absl::Duration round_trip) {
    const uint64_t bytes = std::exchange(bytes_, 0);
    const bool waited = std::exchange(waited_, false);
    // An interval measures the link only if the sender always had bytes to send.
    if (waited || round_trip <= absl::ZeroDuration()) return std::nullopt;
    const double rate = static_cast<double>(bytes) / absl::ToDoubleSeconds(length);
    const double twice = 2 * rate * absl::ToDoubleSeconds(round_trip);
    return std::clamp(static_cast<size_t>(twice), kLeastBytes, kMostBytes);
  }

 private:
  // Of the current interval.
  uint64_t bytes_ = 0;
  bool waited_ = false;
};

}  // namespace phalanx::net

#endif  // PHALANX_NET_PUSH_UNSENT_LIMIT_H_
