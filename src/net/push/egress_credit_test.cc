#include "src/net/push/egress_credit.h"

#include <memory>

#include "gtest/gtest.h"
#include "src/sim/seams/sim_executor.h"

namespace phalanx::net {
namespace {

class EgressCreditTest : public ::testing::Test {
 protected:
  // One byte per microsecond, at most 100 at once.
  EgressLimiter limiter_{1e6, 100};
  sim::SimScheduler scheduler_{{}};
  std::unique_ptr<sim::SimProcess> process_ = scheduler_.NewProcess("p");
  sim::SimExecutor& loop_ = process_->NewExecutor("loop");
  EgressCredit credit_{limiter_, loop_};
  int woken_ = 0;

  void Await() {
    credit_.Await([this] { ++woken_; });
  }
};

TEST_F(EgressCreditTest, WithoutALimitEverythingIsAllowed) {
  EgressLimiter unlimited(0);
  EgressCredit credit(unlimited, loop_);
  EXPECT_EQ(credit.Take(size_t{1} << 40), size_t{1} << 40);
}

TEST_F(EgressCreditTest, WakesOnceWhenTheReservedBytesCanBeSent) {
  EXPECT_EQ(credit_.Take(100), 100u);
  EXPECT_EQ(credit_.Take(50), 0u);
  EXPECT_EQ(credit_.Take(50), 0u) << "reserved once";
  Await();
  Await();
  EXPECT_TRUE(credit_.waiting());
  scheduler_.RunFor(absl::Microseconds(49));
  EXPECT_EQ(woken_, 0);
  scheduler_.RunFor(absl::Microseconds(1));
  EXPECT_EQ(woken_, 1);
  EXPECT_FALSE(credit_.waiting());
  EXPECT_EQ(credit_.Take(50), 50u);
  EXPECT_EQ(credit_.Take(1), 0u);
}

TEST_F(EgressCreditTest, UsesUpItsCreditBeforeItReservesMore) {
  EXPECT_EQ(credit_.Take(100), 100u);
  EXPECT_EQ(credit_.Take(60), 0u);
  scheduler_.RunFor(absl::Microseconds(60));
  EXPECT_EQ(credit_.Take(20), 20u);
  EXPECT_EQ(credit_.Take(100), 40u);
  EXPECT_EQ(credit_.Take(100), 0u);
}

TEST_F(EgressCreditTest, AStoppedWaitKeepsTheCreditAndCallsNothing) {
  EXPECT_EQ(credit_.Take(100), 100u);
  EXPECT_EQ(credit_.Take(50), 0u);
  Await();
  credit_.StopWaiting();
  scheduler_.RunFor(absl::Microseconds(50));
  EXPECT_EQ(woken_, 0);
  EXPECT_EQ(credit_.Take(50), 50u);
}

}  // namespace
}  // namespace phalanx::net
