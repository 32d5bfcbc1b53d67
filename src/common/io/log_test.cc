#include "src/common/io/log.h"

#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "src/common/testing/status_matchers.h"

namespace phalanx {
namespace {

using ::phalanx::testing::StatusIs;
using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;

std::string ReadAll(const std::string& path) {
  std::ifstream in(path);
  return std::string(std::istreambuf_iterator<char>(in), {});
}

// Each test logs to its own file.
class LogTest : public ::testing::Test {
 protected:
  LogTest()
      : path_(absl::StrCat(std::getenv("TEST_TMPDIR"), "/",
                           ::testing::UnitTest::GetInstance()->current_test_info()->name())) {
    PHALANX_EXPECT_OK(SetLogFile(path_));
  }
  ~LogTest() override {
    PHALANX_EXPECT_OK(SetLogFile(""));
    SetLogLevel(LogLevel::kInfo);
  }

  const std::string path_;
};

TEST_F(LogTest, WritesLevelPlaceTextAndFields) {
  PHALANX_LOG(INFO) << "pull resumed" << LogField("offset", 7) << LogField("peer", "10.0.0.1:7");
  EXPECT_THAT(ReadAll(path_),
              ContainsRegex("^[0-9-]+T[0-9:.]+Z INFO  log_test.cc:[0-9]+ pull resumed offset=7 "
                            "peer=10.0.0.1:7\n$"));
}

TEST_F(LogTest, DropsLinesBelowTheLevelWithoutEvaluatingThem) {
  bool evaluated = false;
  const auto text = [&evaluated] {
    evaluated = true;
    return "quiet";
  };
  PHALANX_LOG(DEBUG) << text();
  EXPECT_FALSE(evaluated);
  PHALANX_ASSERT_OK(SetLogLevel("debug"));
  PHALANX_LOG(DEBUG) << "loud";
  SetLogLevel(LogLevel::kOff);
  PHALANX_LOG(ERROR) << "lost";
  EXPECT_THAT(ReadAll(path_),
              AllOf(HasSubstr("loud"), Not(HasSubstr("quiet")), Not(HasSubstr("lost"))));
}

TEST_F(LogTest, KeepsForeignTextOnItsLineAndInItsQuotes) {
  PHALANX_LOG(WARNING) << "line\nbreak" << LogField("name", "a \"b\"\n2022 forged")
                       << LogField("empty", "");
  EXPECT_THAT(ReadAll(path_),
              HasSubstr("line break name=\"a \\\"b\\\"\\n2022 forged\" empty=\"\""));
}

TEST_F(LogTest, RateLimitCountsSuppressedLines) {
  const auto log = [](absl::Duration period) {
    PHALANX_LOG_EVERY(WARNING, period) << "accept failed";
  };
  log(absl::Hours(1));
  for (int i = 0; i < 3; ++i) log(absl::Hours(1));
  EXPECT_THAT(ReadAll(path_), AllOf(HasSubstr("accept failed"), Not(HasSubstr("suppressed"))));

  const auto often = [] { PHALANX_LOG_EVERY(ERROR, absl::ZeroDuration()) << "every time"; };
  often();
  often();
  EXPECT_THAT(ReadAll(path_), HasSubstr("every time\n"));
  internal::LogLimiter limiter;
  uint64_t suppressed = 99;
  EXPECT_TRUE(limiter.Pass(absl::ZeroDuration(), suppressed));
  EXPECT_EQ(suppressed, 0u);
  EXPECT_TRUE(limiter.Pass(absl::Hours(1), suppressed));
  EXPECT_FALSE(limiter.Pass(absl::Hours(1), suppressed));
  EXPECT_FALSE(limiter.Pass(absl::Hours(1), suppressed));
}

TEST_F(LogTest, KeepsItsOutputIfAFileCannotBeOpened) {
  // Even root cannot create a folder below a file.
  const std::string below_a_file = path_ + "/log";
  EXPECT_THAT(SetLogFile(below_a_file),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr(below_a_file)));
  PHALANX_LOG(INFO) << "still here";
  EXPECT_THAT(ReadAll(path_), HasSubstr("still here"));
}

TEST_F(LogTest, CountsLinesThatAFullDiskLost) {
  const uint64_t before = LostLogLines();
  PHALANX_ASSERT_OK(SetLogFile("/dev/full"));
  for (int i = 0; i < 3; ++i) PHALANX_LOG(INFO) << "nowhere to go";
  EXPECT_EQ(LostLogLines(), before + 3);
}

TEST_F(LogTest, RefusesUnknownLevels) {
  EXPECT_THAT(SetLogLevel("verbose"), StatusIs(absl::StatusCode::kInvalidArgument,
                                               HasSubstr("\"verbose\": use debug, info")));
}

}  // namespace
}  // namespace phalanx
