#include "src/cli/units.h"

#include "gtest/gtest.h"
#include "src/common/testing/status_matchers.h"

namespace phalanx::runtime {
namespace {

using testing::IsOkAndHolds;
using testing::StatusIs;

TEST(UnitsTest, ParsesSizesWithEveryUnit) {
  EXPECT_THAT(ParseBytes("0"), IsOkAndHolds(0u));
  EXPECT_THAT(ParseBytes("4096"), IsOkAndHolds(4096u));
  EXPECT_THAT(ParseBytes("7b"), IsOkAndHolds(7u));
  EXPECT_THAT(ParseBytes("64KiB"), IsOkAndHolds(65536u));
  EXPECT_THAT(ParseBytes("64k"), IsOkAndHolds(65536u));
  EXPECT_THAT(ParseBytes("64KB"), IsOkAndHolds(64000u));
  EXPECT_THAT(ParseBytes(" 1.5 GiB "), IsOkAndHolds(uint64_t{3} << 29));
  EXPECT_THAT(ParseBytes("2TiB"), IsOkAndHolds(uint64_t{2} << 40));
  EXPECT_THAT(ParseBytes("9007199254740993"), IsOkAndHolds(9007199254740993u));
}

TEST(UnitsTest, RejectsBadSizesByName) {
  for (const char* text :
       {"", "MiB", "-1", "1x", "1.2.3MB", "8192PiB", "1 2", "0x10", "inf", "nan"}) {
    EXPECT_THAT(ParseBytes(text), StatusIs(absl::StatusCode::kInvalidArgument)) << text;
  }
  EXPECT_THAT(ParseBytes("12 parsecs"),
              StatusIs(absl::StatusCode::kInvalidArgument, ::testing::HasSubstr("\"12 parsecs\"")));
}

TEST(UnitsTest, ParsesRatesInBitsAndBytes) {
  EXPECT_THAT(ParseRate("0"), IsOkAndHolds(0.0));
  EXPECT_THAT(ParseRate("100mbit"), IsOkAndHolds(12.5e6));
  EXPECT_THAT(ParseRate("1gbit/s"), IsOkAndHolds(125e6));
  EXPECT_THAT(ParseRate("8bit"), IsOkAndHolds(1.0));
  EXPECT_THAT(ParseRate("12MB/s"), IsOkAndHolds(12e6));
  EXPECT_THAT(ParseRate("12MBps"), IsOkAndHolds(12e6));
  EXPECT_THAT(ParseRate("1MiB/s"), IsOkAndHolds(1048576.0));
}

TEST(UnitsTest, ARateNeedsAUnit) {
  for (const char* text : {"", "100", "12MB", "mbit", "-1MB/s", "1 furlong/s", "/s", "3/s"}) {
    EXPECT_THAT(ParseRate(text), StatusIs(absl::StatusCode::kInvalidArgument)) << text;
  }
}

TEST(UnitsTest, DurationsNeedAUnitAndASign) {
  EXPECT_THAT(ParseDuration("250ms"), IsOkAndHolds(absl::Milliseconds(250)));
  EXPECT_THAT(ParseDuration("1m30s"), IsOkAndHolds(absl::Seconds(90)));
  EXPECT_THAT(ParseDuration("0"), IsOkAndHolds(absl::ZeroDuration()));
  EXPECT_THAT(ParseDuration("inf"), IsOkAndHolds(absl::InfiniteDuration()));
  for (const char* text : {"", "5", "-1s", "soon"}) {
    EXPECT_THAT(ParseDuration(text), StatusIs(absl::StatusCode::kInvalidArgument)) << text;
  }
}

TEST(UnitsTest, WritesQuantitiesWithThreeDigits) {
  EXPECT_EQ(HumanBytes(0), "0 B");
  EXPECT_EQ(HumanBytes(1023), "1023 B");
  EXPECT_EQ(HumanBytes(1024), "1.00 KiB");
  EXPECT_EQ(HumanBytes(64 << 20), "64.0 MiB");
  EXPECT_EQ(HumanBytes((uint64_t{1} << 30) - 1), "1.00 GiB");
  EXPECT_EQ(HumanRate(0), "-");
  EXPECT_EQ(HumanRate(12.5e6), "12.5 MB/s");
  EXPECT_EQ(HumanRate(1.25e9), "1.25 GB/s");
  EXPECT_EQ(HumanRate(900), "0.90 kB/s");
  EXPECT_EQ(HumanDuration(absl::Microseconds(850)), "850 us");
  EXPECT_EQ(HumanDuration(absl::Milliseconds(281)), "281 ms");
  EXPECT_EQ(HumanDuration(absl::Milliseconds(1250)), "1.25 s");
  EXPECT_EQ(HumanDuration(absl::Seconds(125)), "2m05s");
  EXPECT_EQ(HumanDuration(absl::Hours(98)), "4d02h");
  EXPECT_EQ(HumanDuration(absl::InfiniteDuration()), "inf");
}

}  // namespace
}  // namespace phalanx::runtime
