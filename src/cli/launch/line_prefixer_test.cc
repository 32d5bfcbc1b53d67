#include "src/cli/launch/line_prefixer.h"

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

namespace phalanx::runtime {
namespace {

constexpr size_t kMax = LinePrefixer::kMaxLineBytes;

// Passes `text` in pieces of this size, and returns the output.
std::string Passed(absl::string_view prefix, absl::string_view text, size_t piece) {
  LinePrefixer prefixer{std::string(prefix)};
  std::string out;
  for (size_t at = 0; at < text.size(); at += piece) prefixer.Add(text.substr(at, piece), &out);
  prefixer.End(&out);
  return out;
}

TEST(LinePrefixerTest, EveryLineHasThePrefixHoweverTheBytesArrive) {
  for (const size_t piece : {1, 2, 3, 4, 100}) {
    EXPECT_EQ(Passed("[w1] ", "one\n\ntwo\n", piece), "[w1] one\n[w1] \n[w1] two\n") << piece;
  }
}

TEST(LinePrefixerTest, AnIncompleteLineWaits) {
  LinePrefixer prefixer("> ");
  std::string out;
  prefixer.Add("a\nb", &out);
  EXPECT_EQ(out, "> a\n");
  prefixer.Add("c\n", &out);
  EXPECT_EQ(out, "> a\n> bc\n");
  prefixer.End(&out);
  EXPECT_EQ(out, "> a\n> bc\n");
}

TEST(LinePrefixerTest, TheLastLineGetsItsNewline) {
  EXPECT_EQ(Passed("> ", "a\nb", 1), "> a\n> b\n");
  EXPECT_EQ(Passed("> ", "", 1), "");
}

TEST(LinePrefixerTest, ALongLineIsCutIntoLines) {
  const std::string part(kMax, 'x');
  for (const size_t piece : {size_t{1}, size_t{4096}, 3 * kMax}) {
    EXPECT_EQ(Passed("> ", part + "\n", piece), absl::StrCat("> ", part, "\n"));
    EXPECT_EQ(Passed("> ", part + "y\nz\n", piece), absl::StrCat("> ", part, "\n> y\n> z\n"));
    EXPECT_EQ(Passed("> ", part + part, piece), absl::StrCat("> ", part, "\n> ", part, "\n"));
  }
}

TEST(LinePrefixerTest, WithoutAPrefixTheBytesStay) {
  const std::string part(kMax, 'x');
  for (const std::string& text : {std::string("a\n\nb"), part + part + "y\n", part + "\n"}) {
    for (const size_t piece : {size_t{1}, size_t{5000}, 3 * kMax}) {
      EXPECT_EQ(Passed("", text, piece), text);
    }
  }
}

}  // namespace
}  // namespace phalanx::runtime
