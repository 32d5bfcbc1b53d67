// PerThread<T>(): a T of the calling thread, made by its first use.
//
// It can be used until the thread has ended, also in destructors of thread-local objects. That of
// the main thread is never destroyed: functions of atexit and destructors of static objects, which
// run after the destructors of its thread-local objects, can use it as well. That of another thread
// is destroyed with its thread-local objects; a use after that makes one that stays.
#ifndef PHALANX_COMMON_THREADS_PER_THREAD_H_
#define PHALANX_COMMON_THREADS_PER_THREAD_H_

#include <unistd.h>

#include <utility>

namespace phalanx {

template <typename T>
T& PerThread() {
  // A pointer has no destructor, so that it can be read at any time.
  thread_local T* own = nullptr;
  if (own == nullptr) {
    own = new T;
    struct End {
      ~End() {
        if (gettid() != getpid()) delete std::exchange(own, nullptr);
      }
    };
    thread_local const End end;
  }
  return *own;
}

}  // namespace phalanx

#endif  // PHALANX_COMMON_THREADS_PER_THREAD_H_
