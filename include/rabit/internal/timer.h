// The time, for programs that measure themselves.
#ifndef RABIT_INTERNAL_TIMER_H_
#define RABIT_INTERNAL_TIMER_H_

#include <chrono>

namespace rabit {
namespace utils {

// Seconds since a moment that stays the same within a process. Never goes back.
inline double GetTime() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace utils
}  // namespace rabit

#endif  // RABIT_INTERNAL_TIMER_H_
