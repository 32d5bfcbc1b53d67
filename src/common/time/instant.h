// A point on the monotonic clock, in nanoseconds since an arbitrary start that is the same for the
// whole process.
//
// Protocol decisions use `Instant` and `absl::Duration` only. Wall time appears only in logs. A
// value type: any thread can copy it.
#ifndef PHALANX_COMMON_TIME_INSTANT_H_
#define PHALANX_COMMON_TIME_INSTANT_H_

#include <compare>
#include <cstdint>
#include <limits>

#include "absl/time/time.h"

namespace phalanx {

class Instant {
 public:
  constexpr Instant() = default;
  static constexpr Instant FromNanos(int64_t nanos) { return Instant(nanos); }
  // Later than every instant a clock returns: "no deadline".
  static constexpr Instant Infinite() { return Instant(std::numeric_limits<int64_t>::max()); }

  constexpr int64_t nanos() const { return nanos_; }
  constexpr bool infinite() const { return nanos_ == std::numeric_limits<int64_t>::max(); }

  friend constexpr auto operator<=>(Instant a, Instant b) = default;
  // Saturates at Infinite().
  friend Instant operator+(Instant t, absl::Duration d) {
    if (t.infinite() || d == absl::InfiniteDuration()) return Infinite();
    int64_t sum;
    if (__builtin_add_overflow(t.nanos_, absl::ToInt64Nanoseconds(d), &sum)) {
      return d > absl::ZeroDuration() ? Infinite() : Instant(std::numeric_limits<int64_t>::min());
    }
    return Instant(sum);
  }
  friend Instant operator-(Instant t, absl::Duration d) { return t + -d; }
  friend absl::Duration operator-(Instant a, Instant b) {
    if (a.infinite()) return absl::InfiniteDuration();
    return absl::Nanoseconds(a.nanos_ - b.nanos_);
  }

 private:
  explicit constexpr Instant(int64_t nanos) : nanos_(nanos) {}
  int64_t nanos_ = 0;
};

}  // namespace phalanx

#endif  // PHALANX_COMMON_TIME_INSTANT_H_
