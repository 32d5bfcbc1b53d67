// The monotonic clock. No other file reads it.
//
// For rims, on any thread. Cores take the time as an argument.
#ifndef PHALANX_COMMON_TIME_CLOCK_H_
#define PHALANX_COMMON_TIME_CLOCK_H_

#include <time.h>

#include "src/common/time/instant.h"

namespace phalanx {

inline Instant MonotonicNow() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return Instant::FromNanos(int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec);
}

}  // namespace phalanx

#endif  // PHALANX_COMMON_TIME_CLOCK_H_
