#include "src/cli/bench/pattern.h"

#include <string>

#include "gtest/gtest.h"

namespace phalanx::runtime::bench {
namespace {

std::string Pattern(uint64_t seed, size_t size) {
  std::string bytes(size, '\0');
  FillPattern(seed, absl::MakeSpan(&bytes[0], size));
  return bytes;
}

TEST(PatternTest, MatchesItselfAtEverySizeAroundAWord) {
  for (size_t size = 0; size < 40; ++size) {
    EXPECT_TRUE(MatchesPattern(7, Pattern(7, size))) << size;
  }
}

TEST(PatternTest, DetectsOneWrongByteAnywhere) {
  const std::string right = Pattern(7, 29);
  for (size_t i = 0; i < right.size(); ++i) {
    std::string wrong = right;
    wrong[i] ^= 1;
    EXPECT_FALSE(MatchesPattern(7, wrong)) << i;
  }
}

TEST(PatternTest, AnotherSeedOrAShiftDoesNotMatch) {
  const std::string bytes = Pattern(7, 64);
  EXPECT_FALSE(MatchesPattern(8, bytes));
  EXPECT_FALSE(MatchesPattern(7, absl::string_view(bytes).substr(8)));
}

}  // namespace
}  // namespace phalanx::runtime::bench
