// NoThreads: while it lives, no thread can be started in this process. Testonly.
#ifndef PHALANX_COMMON_TESTING_NO_THREADS_H_
#define PHALANX_COMMON_TESTING_NO_THREADS_H_

#include <pthread.h>

#include <cstddef>

#include "gtest/gtest.h"

namespace phalanx::testing {

// By asking for stacks that no address space holds: limits do not bind whoever is root.
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
