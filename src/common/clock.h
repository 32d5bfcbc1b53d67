// The monotonic clock: the one place of the code that reads it.
//
// For rims, on any thread. Cores are told the time.
#ifndef PHALANX_COMMON_CLOCK_H_
#define PHALANX_COMMON_CLOCK_H_

#include <time.h>

#include "src/common/instant.h"

namespace phalanx {

inline Instant MonotonicNow() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return Instant::FromNanos(int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec);
}

}  // namespace phalanx

#endif  // PHALANX_COMMON_CLOCK_H_
