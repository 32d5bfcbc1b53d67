#include "src/client/jobs/declared_death.h"

#include <optional>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace phalanx::internal {
namespace {

using ::testing::Optional;
using Kind = DeathPoint::Kind;

TEST(DeathPointTest, EachFormIsAPoint) {
  EXPECT_THAT(ParseDeathPoint("57"), Optional(DeathPoint{Kind::kCall, 57}));
  EXPECT_THAT(ParseDeathPoint("57:entry"), Optional(DeathPoint{Kind::kCall, 57}));
  EXPECT_THAT(ParseDeathPoint("57:put:0"), Optional(DeathPoint{Kind::kPut, 57, 0}));
  EXPECT_THAT(ParseDeathPoint("1:put:4294967296"),
              Optional(DeathPoint{Kind::kPut, 1, uint64_t{1} << 32}));
  EXPECT_THAT(ParseDeathPoint("load"), Optional(DeathPoint{Kind::kLoad}));
  EXPECT_THAT(ParseDeathPoint("checkpoint"), Optional(DeathPoint{Kind::kCheckpoint, 1}));
  EXPECT_THAT(ParseDeathPoint("checkpoint:3"), Optional(DeathPoint{Kind::kCheckpoint, 3}));
  EXPECT_THAT(ParseDeathPoint("leave"), Optional(DeathPoint{Kind::kLeave}));
}

TEST(DeathPointTest, ParameterServersHavePointsWithClocks) {
  EXPECT_THAT(ParseDeathPoint("push:0"), Optional(DeathPoint{Kind::kPush, 0}));
  EXPECT_THAT(ParseDeathPoint("pull:7"), Optional(DeathPoint{Kind::kPull, 7}));
  EXPECT_THAT(ParseDeathPoint("clock:20"), Optional(DeathPoint{Kind::kClock, 20}));
  EXPECT_THAT(ParseDeathPoint("snapshot:20:1000"), Optional(DeathPoint{Kind::kSnapshot, 20, 1000}));
  EXPECT_THAT(ParseDeathPoint("restore:0"), Optional(DeathPoint{Kind::kRestore, 0}));
  for (const char* text : {"push", "push:", "push:x", "push:1:2", "snapshot:1",
                           "snapshot:1:", "snapshot:1:2:3", "restore", "pushes:1"}) {
    EXPECT_EQ(ParseDeathPoint(text), std::nullopt) << text;
  }
}

TEST(DeathPointTest, OtherTextsAreNone) {
  for (const char* text : {"",
                           "0",
                           "-1",
                           "+1",
                           " 1",
                           "1 ",
                           "1.5",
                           "x",
                           "57:",
                           "57:ENTRY",
                           "57:put",
                           "57:put:",
                           "57:put:-1",
                           "57:put:x",
                           "57:put:1:2",
                           "57:entry:1",
                           "0:put:1",
                           "load:1",
                           "load:",
                           "checkpoint:",
                           "checkpoint:0",
                           "checkpoint:x",
                           "checkpoint:1:2",
                           "leave:1",
                           "put:1",
                           ":",
                           "18446744073709551616",
                           "57:put:18446744073709551616"}) {
    EXPECT_EQ(ParseDeathPoint(text), std::nullopt) << text;
  }
  EXPECT_EQ(ParseDeathPoint(absl::string_view()), std::nullopt);
}

TEST(DeathPointTest, TheTextOfAPointIsRead) {
  for (const char* text : {"57", "57:put:0", "57:put:1000", "load", "checkpoint:2", "leave",
                           "push:0", "pull:3", "clock:4", "snapshot:5:6", "restore:7"}) {
    EXPECT_EQ(DeathPointText(ParseDeathPoint(text).value()), text);
  }
  EXPECT_EQ(DeathPointText(ParseDeathPoint("57:entry").value()), "57");
  EXPECT_EQ(DeathPointText(ParseDeathPoint("checkpoint").value()), "checkpoint:1");
  EXPECT_EQ(DeathPointText(DeathPoint()), "");
}

}  // namespace
}  // namespace phalanx::internal
