// EgressLimiter: a token bucket over the bytes that a node sends, shared by all its pushes on all
// its loops.
//
// A push reserves the bytes that it wants to send next, and gets the time at which it may send
// them. Reservations are served in the order in which they were made, so pushes that reserve one
// segment at a time take turns. The state is one number, the time at which the bucket would be full
// again (the "theoretical arrival time" of ATM's cell-rate algorithm).
//
// Thread rule: thread-safe, lock-free. All instants are of one clock.
#ifndef PHALANX_NET_PUSH_EGRESS_LIMITER_H_
#define PHALANX_NET_PUSH_EGRESS_LIMITER_H_

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "src/common/time/instant.h"

namespace phalanx::net {

class EgressLimiter {
 public:
  static constexpr size_t kBurstBytes = size_t{128} * 1024;

  // Bytes per second; 0 or less means no limit.
  explicit EgressLimiter(double bytes_per_second, size_t burst_bytes = kBurstBytes);

  bool limited() const { return nanos_per_byte_ > 0; }

  // Returns the time at which the next `bytes` bytes may be sent; at most `now` if they may be sent
  // at once. Reserved bytes that are not sent are lost for all pushes.
  Instant Reserve(Instant now, size_t bytes);

 private:
  // Constant after construction.
  const double nanos_per_byte_;
  const int64_t burst_nanos_;

  std::atomic<int64_t> full_at_nanos_{0};
};

}  // namespace phalanx::net

#endif  // PHALANX_NET_PUSH_EGRESS_LIMITER_H_
