#include "src/cli/views/progress_bar.h"

#include "gtest/gtest.h"
#include "src/cli/views/text_table.h"

namespace phalanx::runtime {
namespace {

TEST(ProgressBarTest, ShowsProgressRateAndTimeLeft) {
  EXPECT_EQ(RenderProgress("put x", 50 << 20, 100 << 20, absl::Seconds(1), 100),
            "put x  ████████████              50 %  50.0 MiB of 100 MiB  52.4 MB/s  1.00 s left");
}

TEST(ProgressBarTest, ShowsNoRateOfItsFirstInstants) {
  EXPECT_EQ(RenderProgress("put x", 1 << 20, 30 << 20, absl::Microseconds(220), 100),
            "put x  ▊                          3 %  1.00 MiB of 30.0 MiB");
}

TEST(ProgressBarTest, TheRateOfTheSummaryIsThatOfItsTime) {
  EXPECT_EQ(RenderSummary(30 << 20, absl::Milliseconds(1910)), "30.0 MiB in 1.91 s, 16.5 MB/s");
  EXPECT_EQ(RenderSummary(0, absl::Milliseconds(2)), "0 B in 2.00 ms");
}

TEST(ProgressBarTest, AnEmptyObjectIsCompleteAtOnce) {
  EXPECT_EQ(RenderProgress("get 0", 0, 0, absl::ZeroDuration(), 100),
            "get 0  ████████████████████████ 100 %  0 B of 0 B");
}

TEST(ProgressBarTest, NoLineIsWiderThanTheTerminal) {
  for (int columns = 1; columns < 120; ++columns) {
    const std::string line =
        RenderProgress("put \x1b[31mname", 7 << 20, 100 << 20, absl::Seconds(1), columns);
    EXPECT_LE(DisplayWidth(line), static_cast<size_t>(columns));
    EXPECT_EQ(line.find('\x1b'), std::string::npos);
  }
}

}  // namespace
}  // namespace phalanx::runtime
