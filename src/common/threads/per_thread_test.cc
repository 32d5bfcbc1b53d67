#include "src/common/threads/per_thread.h"

#include <unistd.h>

#include <cstdlib>
#include <string>
#include <thread>

#include "gtest/gtest.h"

namespace phalanx {
namespace {

struct Counted {
  static int alive;
  int value = 0;

  Counted() { ++alive; }
  ~Counted() { --alive; }
};
int Counted::alive = 0;

TEST(PerThreadTest, IsAnotherInEachThreadAndEndsWithIt) {
  PerThread<Counted>().value = 1;
  std::thread([] {
    EXPECT_EQ(PerThread<Counted>().value, 0);
    PerThread<Counted>().value = 2;
    EXPECT_EQ(PerThread<Counted>().value, 2);
    EXPECT_EQ(Counted::alive, 2);
  }).join();
  EXPECT_EQ(Counted::alive, 1);
  EXPECT_EQ(PerThread<Counted>().value, 1);
}

TEST(PerThreadDeathTest, OfTheMainThreadIsThereInFunctionsOfAtexit) {
  constexpr int kThere = 7;
  const auto exits = [] {
    PerThread<Counted>().value = 1;
    std::atexit([] { _exit(PerThread<Counted>().value == 1 && Counted::alive == 1 ? kThere : 1); });
    std::exit(0);
  };
  EXPECT_EXIT(exits(), ::testing::ExitedWithCode(kThere), "");
}

}  // namespace
}  // namespace phalanx
