#include "src/cli/views/text_table.h"

#include <algorithm>

#include "gtest/gtest.h"
#include "src/cli/views/colour.h"

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

TEST(TextTableTest, AColourTakesNoCellAndSurvivesACut) {
  const std::string text = Painted("█bc", Colour::kGreen, true) + "de";
  EXPECT_EQ(text, "\x1b[32m█bc\x1b[0mde");
  EXPECT_EQ(DisplayWidth(text), 5u);
  EXPECT_EQ(CutToWidth(text, 4), "\x1b[32m█bc\x1b[0md");
  EXPECT_EQ(CutToWidth(text, 1), "\x1b[32m█\x1b[0m");
  EXPECT_EQ(CutToWidth(text, 9), text);
  EXPECT_EQ(CutToWidth("", 9), "");
  // Only a colour is one: another sequence is text, as Printable would show it.
  EXPECT_EQ(DisplayWidth("\x1b[2Ja"), 5u);
  EXPECT_EQ(Painted("a", Colour::kRed, false), "a");
  EXPECT_EQ(Painted("", Colour::kRed, true), "");
}

TEST(TextTableTest, IdeographsTakeTwoCellsAndCombinedAccentsNone) {
  EXPECT_EQ(DisplayWidth("日本/🚀"), 7u);
  EXPECT_EQ(DisplayWidth("e\u0301te\u0301"), 3u);
  // A bar, a letter and an ellipsis take one each.
  EXPECT_EQ(DisplayWidth("█ü…"), 3u);
  EXPECT_EQ(CutToWidth("日本x", 4), "日本");
  EXPECT_EQ(CutToWidth("日本x", 3), "日");
  EXPECT_EQ(CutToWidth("日本x", 1), "");
  EXPECT_EQ(AlignColumns({{"日本", "1"}, {"abc", "2"}}, {}), "日本  1\nabc   2\n");
  // No UTF-8: a cell for each byte that begins a character.
  EXPECT_EQ(DisplayWidth("\xff\xfe a\xe3"), 5u);
}

TEST(TextTableTest, DispensableColumnsAreOmittedInTheirOrder) {
  const std::vector<std::vector<std::string>> rows = {Heading({"A", "BB", "CCC"}, true),
                                                      {"1", "2", "3"}};
  EXPECT_EQ(AlignColumns({{"A", "BB", "CCC"}}, {}, {10, {"BB", "A"}}), "A  BB  CCC\n");
  EXPECT_EQ(AlignColumns({{"A", "BB", "CCC"}}, {}, {9, {"BB", "A"}}), "A  CCC\n");
  EXPECT_EQ(AlignColumns({{"A", "BB", "CCC"}}, {}, {5, {"BB", "A"}}), "CCC\n");
  EXPECT_EQ(AlignColumns({{"A", "BB", "CCC"}}, {}, {2, {"BB", "A"}}), "CCC\n");
  EXPECT_EQ(AlignColumns(rows, {true, true}, {9, {"A"}}),
            "\x1b[1mBB\x1b[0m  \x1b[1mCCC\x1b[0m\n 2  3\n");
}

TEST(TextTableTest, AnIdIsShortInANarrowPane) {
  const std::string id(20, '\xab');
  EXPECT_EQ(FittingId(id, 100).size(), 40u);
  EXPECT_EQ(FittingId(id, 99), "abababab");
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
