// EgressLimiter: a token bucket over the bytes that a node sends, shared by all its pushes on all
// its loops.
//
// Kept as one number, the instant at which the bucket will be full again (the "theoretical arrival
// time" of ATM's cell-rate algorithm): full now means a whole burst may go; further in the future
// than the burst takes, nothing may. A sender asks for its allowance, sends, and charges what it
// really sent. Several loops may be told of the same allowance at once and overshoot by one burst
// each; what they charged is paid back before anybody sends again, so the long-term rate is exact.
//
// Thread rule: thread-safe, lock-free; the instants are of one clock.
#ifndef PHALANX_NET_EGRESS_LIMITER_H_
#define PHALANX_NET_EGRESS_LIMITER_H_

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "src/common/instant.h"

namespace phalanx::net {

class EgressLimiter {
 public:
  static constexpr size_t kBurstBytes = 128 * 1024;

  // Bytes a second; 0 or less is no limit.
  explicit EgressLimiter(double bytes_per_second, size_t burst_bytes = kBurstBytes);

  bool limited() const { return nanos_per_byte_ > 0; }

  // How many of `want` bytes may be sent at once now: all of them, or as many as are left in the
  // bucket; 0 when less than half of min(want, burst) is left, so that nobody sends crumbs.
  size_t Allowance(Instant now, size_t want) const;
  // When Allowance for this `want` will not be 0, if nobody else sends.
  Instant AllowedAt(Instant now, size_t want) const;
  // Takes what was sent out of the bucket.
  void Charge(Instant now, size_t bytes);

 private:
  double Left(Instant now) const;
  double Least(size_t want) const;

  // Constant after construction.
  const double nanos_per_byte_;
  const double burst_bytes_;

  std::atomic<int64_t> full_at_nanos_{0};
};

}  // namespace phalanx::net

#endif  // PHALANX_NET_EGRESS_LIMITER_H_
