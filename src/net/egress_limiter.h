// EgressLimiter: a token bucket over the bytes that a node sends, shared by all its pushes on all
// its loops.
//
// A push reserves what it wants to send next and is told when that may go. Reservations are served
// in the order in which they were made, so that pushes which reserve one segment at a time take
// turns. Kept as one number, the instant at which the bucket would be full again (the "theoretical
// arrival time" of ATM's cell-rate algorithm).
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
  static constexpr size_t kBurstBytes = size_t{128} * 1024;

  // Bytes a second; 0 or less is no limit.
  explicit EgressLimiter(double bytes_per_second, size_t burst_bytes = kBurstBytes);

  bool limited() const { return nanos_per_byte_ > 0; }

  // When the next `bytes` bytes may be sent; not later than `now` if at once. What is reserved and
  // not sent is lost to everybody.
  Instant Reserve(Instant now, size_t bytes);

 private:
  // Constant after construction.
  const double nanos_per_byte_;
  const int64_t burst_nanos_;

  std::atomic<int64_t> full_at_nanos_{0};
};

}  // namespace phalanx::net

#endif  // PHALANX_NET_EGRESS_LIMITER_H_
