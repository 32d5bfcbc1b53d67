// Loaded before the C library (LD_PRELOAD). The wall clock of the process is off by the number of
// seconds in the file that JUMPING_CLOCK names, and follows later changes of the file. Waits until
// an instant of the wall clock use this clock too. The monotonic clock is unchanged.

#include <dlfcn.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#include <cstdint>

namespace {

int64_t Offset() {
  static const volatile int64_t* const seconds = []() -> const volatile int64_t* {
    const char* path = getenv("JUMPING_CLOCK");
    const int file = path == nullptr ? -1 : open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0) return nullptr;
    void* page = mmap(nullptr, sizeof(int64_t), PROT_READ, MAP_SHARED, file, 0);
    close(file);
    return page == MAP_FAILED ? nullptr : static_cast<const volatile int64_t*>(page);
  }
  ();
  return seconds == nullptr ? 0 : *seconds;
}

bool IsWallClock(clockid_t clock) {
  return clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE;
}

template <typename Function>
Function Next(const char* name) {
  return reinterpret_cast<Function>(dlsym(RTLD_NEXT, name));
}

timespec Real(const timespec* seen) {
  timespec real = *seen;
  real.tv_sec -= Offset();
  if (real.tv_sec < 0) real = {};
  return real;
}

}  // namespace

extern "C" {

int clock_gettime(clockid_t clock, timespec* now) {
  static const auto next = Next<int (*)(clockid_t, timespec*)>("clock_gettime");
  const int result = next(clock, now);
  if (result == 0 && IsWallClock(clock)) now->tv_sec += Offset();
  return result;
}

int gettimeofday(timeval* now, void*) {
  timespec exact;
  clock_gettime(CLOCK_REALTIME, &exact);
  *now = {exact.tv_sec, exact.tv_nsec / 1000};
  return 0;
}

time_t time(time_t* out) {
  timespec exact;
  clock_gettime(CLOCK_REALTIME, &exact);
  if (out != nullptr) *out = exact.tv_sec;
  return exact.tv_sec;
}

int pthread_cond_timedwait(pthread_cond_t* condition, pthread_mutex_t* mutex,
                           const timespec* until) {
  static const auto clock_wait =
      Next<int (*)(pthread_cond_t*, pthread_mutex_t*, clockid_t, const timespec*)>(
          "pthread_cond_clockwait");
  const timespec real = Real(until);
  return clock_wait(condition, mutex, CLOCK_REALTIME, &real);
}

// Abseil waits with this call.
long syscall(long number, ...) {
  static const auto next = Next<long (*)(long, ...)>("syscall");
  va_list list;
  va_start(list, number);
  long arguments[6];
  for (long& argument : arguments) argument = va_arg(list, long);
  va_end(list);
  timespec real;
  if (number == SYS_futex && (arguments[1] & FUTEX_CLOCK_REALTIME) != 0 && arguments[3] != 0) {
    real = Real(reinterpret_cast<const timespec*>(arguments[3]));
    arguments[3] = reinterpret_cast<long>(&real);
  }
  return next(number, arguments[0], arguments[1], arguments[2], arguments[3], arguments[4],
              arguments[5]);
}

}  // extern "C"
