#include "src/common/random.h"

#include <vector>

#include "gtest/gtest.h"

namespace phalanx {
namespace {

TEST(RandomTest, SameSeedSameSequenceOnEveryPlatform) {
  Random random(42);
  EXPECT_EQ(random.Next(), 0x15780b2e0c2ec716u);
  EXPECT_EQ(random.Next(), 0x6104d9866d113a7eu);
  EXPECT_NE(Random(1).Next(), Random(2).Next());
}

TEST(RandomTest, BelowStaysBelowAndReachesEverything) {
  Random random(1);
  std::vector<int> count(10);
  for (int i = 0; i < 10'000; ++i) ++count.at(random.Below(10));
  for (const int n : count) EXPECT_NEAR(n, 1000, 150);
  for (int i = 0; i < 10; ++i) EXPECT_EQ(random.Below(1), 0u);
  EXPECT_DEATH(random.Below(0), "Below\\(0\\)");
}

TEST(RandomTest, UnitAndChanceFollowTheirProbability) {
  Random random(1);
  int hits = 0;
  for (int i = 0; i < 10'000; ++i) {
    const double unit = random.Unit();
    EXPECT_GE(unit, 0.0);
    EXPECT_LT(unit, 1.0);
    hits += random.Chance(0.25);
    EXPECT_FALSE(random.Chance(0.0));
    EXPECT_TRUE(random.Chance(1.0));
  }
  EXPECT_NEAR(hits, 2500, 200);
}

TEST(RandomTest, AForkDoesNotDisturbItsParent) {
  Random with(3), without(3);
  Random fork = with.Fork();
  for (int i = 0; i < 100; ++i) fork.Next();
  without.Next();  // Fork takes its seed from here.
  EXPECT_EQ(with.Next(), without.Next());
  EXPECT_NE(fork.Next(), with.Next());
}

TEST(RandomTest, SystemBytesFillTheWholeBuffer) {
  std::vector<uint8_t> bytes(1000);
  SystemRandomBytes(bytes.data(), bytes.size());
  int zeros = 0;
  for (const uint8_t byte : bytes) zeros += byte == 0;
  EXPECT_LT(zeros, 50);
  EXPECT_NE(SystemRandom64(), SystemRandom64());
}

}  // namespace
}  // namespace phalanx
