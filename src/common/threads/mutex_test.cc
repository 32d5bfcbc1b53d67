#include "src/common/threads/mutex.h"

#include <thread>

#include "gtest/gtest.h"

namespace phalanx {
namespace {

TEST(MutexTest, ExcludesOtherThreads) {
  Mutex mu;
  int count = 0;
  const auto add = [&mu, &count] {
    for (int i = 0; i < 10'000; ++i) {
      MutexLock lock(mu);
      ++count;
    }
  };
  std::thread other(add);
  add();
  other.join();
  EXPECT_EQ(count, 20'000);
}

TEST(MutexTest, CondVarPassesAValueBetweenThreads) {
  Mutex mu;
  CondVar changed;
  int turn = 0;
  std::thread other([&] {
    MutexLock lock(mu);
    while (turn != 1) changed.Wait(mu);
    turn = 2;
    changed.SignalAll();
  });
  {
    MutexLock lock(mu);
    turn = 1;
    changed.SignalAll();
    while (turn != 2) changed.WaitFor(mu, absl::InfiniteDuration());
  }
  other.join();
  EXPECT_EQ(turn, 2);
}

TEST(MutexTest, WaitForReturnsFalseAfterTheTimeout) {
  Mutex mu;
  CondVar never;
  MutexLock lock(mu);
  while (never.WaitFor(mu, absl::Milliseconds(1))) {
  }
}

}  // namespace
}  // namespace phalanx
