// NoThreads: while an instance exists, the process cannot start a thread. Testonly.
#ifndef PHALANX_COMMON_TESTING_NO_THREADS_H_
#define PHALANX_COMMON_TESTING_NO_THREADS_H_

#include <pthread.h>

#include <cstddef>

#include "gtest/gtest.h"

namespace phalanx::testing {

// Sets a default stack size that no address space has room for. Limits on the number of threads do
// not apply to root.
class NoThreads {
 public:
  NoThreads() {
    EXPECT_EQ(pthread_getattr_default_np(&before_), 0);
    pthread_attr_t huge;
    EXPECT_EQ(pthread_getattr_default_np(&huge), 0);
    EXPECT_EQ(pthread_attr_setstacksize(&huge, size_t{1} << 62), 0);
    EXPECT_EQ(pthread_setattr_default_np(&huge), 0);
    pthread_attr_destroy(&huge);
  }
  ~NoThreads() {
    EXPECT_EQ(pthread_setattr_default_np(&before_), 0);
    pthread_attr_destroy(&before_);
  }

 private:
  pthread_attr_t before_;
};

}  // namespace phalanx::testing

#endif  // PHALANX_COMMON_TESTING_NO_THREADS_H_
