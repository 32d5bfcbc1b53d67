#include "src/net/push/signs_of_life.h"

#include "gtest/gtest.h"

namespace phalanx::net {
namespace {

constexpr absl::Duration kInterval = absl::Milliseconds(100);
const absl::Duration kPatience = SignsOfLife::kPatience * kInterval;

class SignsOfLifeTest : public ::testing::Test {
 protected:
  SignsOfLifeTest() {
    signs_.SetInterval(kInterval);
    signs_.ReceiverAlive(start_);
    signs_.Wrote(start_, /*starved=*/false);
  }

  const Instant start_ = Instant::FromNanos(1'000'000'000);
  SignsOfLife signs_;
};

TEST_F(SignsOfLifeTest, ASignIsDueAfterAnIntervalWithoutAWrite) {
  EXPECT_FALSE(signs_.SignDue(start_ + kInterval * 0.9));
  EXPECT_TRUE(signs_.SignDue(start_ + kInterval));
  signs_.Wrote(start_ + kInterval, /*starved=*/true);
  EXPECT_FALSE(signs_.SignDue(start_ + kInterval * 1.9));
}

TEST_F(SignsOfLifeTest, AReceiverThatTakesNothingIsLost) {
  EXPECT_FALSE(signs_.ReceiverLost(start_ + kPatience * 0.9));
  EXPECT_TRUE(signs_.ReceiverLost(start_ + kPatience));
}

TEST_F(SignsOfLifeTest, ATakenStarvedDoesNotProveThatTheReceiverLives) {
  signs_.Wrote(start_ + kInterval, /*starved=*/true);
  EXPECT_TRUE(signs_.ReceiverLost(start_ + kPatience));
}

TEST_F(SignsOfLifeTest, TakenSegmentsAndFramesProveThatTheReceiverLives) {
  signs_.Wrote(start_ + kInterval, /*starved=*/false);
  EXPECT_FALSE(signs_.ReceiverLost(start_ + kPatience));
  signs_.ReceiverAlive(start_ + 2 * kInterval);
  EXPECT_FALSE(signs_.ReceiverLost(start_ + kPatience + kInterval));
  EXPECT_TRUE(signs_.ReceiverLost(start_ + kPatience + 2 * kInterval));
}

}  // namespace
}  // namespace phalanx::net
