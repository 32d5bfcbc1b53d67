#include "src/net/push/egress_limiter.h"

#include <algorithm>

namespace phalanx::net {

EgressLimiter::EgressLimiter(double bytes_per_second, size_t burst_bytes)
    : nanos_per_byte_(bytes_per_second > 0 ? 1e9 / bytes_per_second : 0),
      burst_nanos_(static_cast<int64_t>(static_cast<double>(burst_bytes) * nanos_per_byte_)) {}

Instant EgressLimiter::Reserve(Instant now, size_t bytes) {
  if (!limited()) return now;
  const int64_t cost = static_cast<int64_t>(static_cast<double>(bytes) * nanos_per_byte_);
  int64_t before = full_at_nanos_.load();
  int64_t after;
  do {
    // The maximum discards credit beyond a full bucket: idle time allows no more than one burst.
    after = std::max(before, now.nanos()) + cost;
  } while (!full_at_nanos_.compare_exchange_weak(before, after));
  // A reservation conforms at most one burst before the time at which the bucket is full again.
  return Instant::FromNanos(after - burst_nanos_);
}

}  // namespace phalanx::net
