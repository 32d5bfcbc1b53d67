#include "src/cli/views/text_table.h"

#include <algorithm>

#include "gtest/gtest.h"

namespace phalanx::runtime {
namespace {

TEST(TextTableTest, DigitsInNamesCompareAsNumbers) {
  std::vector<std::string> names = {"n10", "n2", "n", "m3", "n02", "n2a", "n1.9", "n1.10"};
  std::sort(names.begin(), names.end(),
            [](const std::string& a, const std::string& b) { return CompareNaturally(a, b) < 0; });
  EXPECT_EQ(names,
            (std::vector<std::string>{"m3", "n", "n1.9", "n1.10", "n02", "n2", "n2a", "n10"}));
}

TEST(TextTableTest, ComparisonIsATotalOrder) {
  const std::vector<std::string> names = {"", "0", "00", "a", "a0", "a00", "a1", "a01", "b"};
  for (const std::string& a : names) {
    EXPECT_EQ(CompareNaturally(a, a), 0);
    for (const std::string& b : names) {
      EXPECT_EQ(CompareNaturally(a, b), -CompareNaturally(b, a)) << a << " " << b;
    }
  }
}

TEST(TextTableTest, ABarHasTheSameWidthAtEveryFraction) {
  for (int i = -1; i <= 101; ++i) {
    EXPECT_EQ(DisplayWidth(DrawBar(i / 100.0, 10, true)), 10u) << i;
    EXPECT_EQ(DisplayWidth(DrawBar(i / 100.0, 10, false)), 10u) << i;
  }
  EXPECT_EQ(DrawBar(0, 4, true), "    ");
  EXPECT_EQ(DrawBar(1, 4, true), "████");
  EXPECT_EQ(DrawBar(0.5, 4, true), "██  ");
  EXPECT_EQ(DrawBar(0.4, 4, true), "█▌  ");
}

TEST(TextTableTest, ColumnsAlignByDisplayWidth) {
  EXPECT_EQ(AlignColumns({{"name", "bytes", ""}, {"├─ ü", "7", ""}, {"x"}}, {false, true}),
            "name  bytes\n"
            "├─ ü      7\n"
            "x\n");
}

TEST(TextTableTest, ControlCharactersAreNotPrinted) {
  EXPECT_EQ(Printable("a\x1b[2J\nü\x7f"), "a?[2J?ü?");
}

}  // namespace
}  // namespace phalanx::runtime
