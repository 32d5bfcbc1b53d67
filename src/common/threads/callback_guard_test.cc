#include "src/common/threads/callback_guard.h"

#include <functional>
#include <memory>
#include <optional>

#include "gtest/gtest.h"

namespace phalanx {
namespace {

TEST(CallbackGuard, CallbacksRunUntilTheGuardIsClosed) {
  CallbackGuard guard;
  int sum = 0;
  auto add = guard.Wrap([&sum](int n) { sum += n; });
  add(1);
  add(2);
  EXPECT_EQ(sum, 3);
  guard.Close();
  guard.Close();
  add(4);
  guard.Wrap([&sum] { ++sum; })();
  EXPECT_EQ(sum, 3);
}

TEST(CallbackGuard, CallbacksThatOutliveTheGuardDoNothing) {
  std::optional<CallbackGuard> guard(std::in_place);
  int runs = 0;
  const std::function<void()> later = guard->Wrap([&runs] { ++runs; });
  guard.reset();
  later();
  EXPECT_EQ(runs, 0);
}

TEST(CallbackGuard, ArgumentsThatOnlyMoveReachTheCallback) {
  CallbackGuard guard;
  int got = 0;
  guard.Wrap([&got](std::unique_ptr<int> value) { got = *value; })(std::make_unique<int>(7));
  EXPECT_EQ(got, 7);
}

}  // namespace
}  // namespace phalanx
