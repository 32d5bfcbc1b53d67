#include "src/net/egress_limiter.h"

#include <algorithm>
#include <cmath>

namespace phalanx::net {

EgressLimiter::EgressLimiter(double bytes_per_second, size_t burst_bytes)
    : nanos_per_byte_(bytes_per_second > 0 ? 1e9 / bytes_per_second : 0),
      burst_bytes_(static_cast<double>(burst_bytes)) {}

double EgressLimiter::Left(Instant now) const {
  const int64_t until_full = full_at_nanos_.load() - now.nanos();
  if (until_full <= 0) return burst_bytes_;
  return burst_bytes_ - static_cast<double>(until_full) / nanos_per_byte_;
}

double EgressLimiter::Least(size_t want) const {
  return std::min(static_cast<double>(want), burst_bytes_) / 2;
}

size_t EgressLimiter::Allowance(Instant now, size_t want) const {
  if (!limited()) return want;
  const double left = Left(now);
  if (left < Least(want) || left < 1) return 0;
  return static_cast<size_t>(std::min(left, static_cast<double>(want)));
}

Instant EgressLimiter::AllowedAt(Instant now, size_t want) const {
  if (!limited()) return now;
  const double missing = std::max(Least(want), 1.0) - Left(now);
  if (missing <= 0) return now;
  return now + absl::Nanoseconds(std::ceil(missing * nanos_per_byte_));
}

void EgressLimiter::Charge(Instant now, size_t bytes) {
  if (!limited()) return;
  const int64_t cost = static_cast<int64_t>(static_cast<double>(bytes) * nanos_per_byte_);
  int64_t full_at = full_at_nanos_.load();
  while (!full_at_nanos_.compare_exchange_weak(full_at, std::max(full_at, now.nanos()) + cost)) {
  }
}

}  // namespace phalanx::net
