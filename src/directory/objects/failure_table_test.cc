#include "src/directory/objects/failure_table.h"

#include "gtest/gtest.h"
#include "src/common/testing/status_matchers.h"

namespace phalanx::directory {
namespace {

using ::phalanx::testing::IsOk;

DirectoryOptions Options() {
  DirectoryOptions options;
  options.max_failed = 2;
  return options;
}

class FailureTableTest : public ::testing::Test {
 protected:
  ~FailureTableTest() override { EXPECT_THAT(failures_.CheckInvariants(), IsOk()); }

  static ObjectId Id(const char* name) { return ObjectId::FromName("test", name); }

  CoreContext context_{Options(), Instant(), Random(1)};
  FailureTable failures_{context_};
};

TEST_F(FailureTableTest, ALaterReportReplacesTheError) {
  failures_.Set(Id("x"), absl::InternalError("first"));
  failures_.Set(Id("x"), absl::AbortedError("second"));
  ASSERT_NE(failures_.Find(Id("x")), nullptr);
  EXPECT_EQ(*failures_.Find(Id("x")), absl::AbortedError("second"));
  EXPECT_EQ(failures_.Find(Id("y")), nullptr);
}

TEST_F(FailureTableTest, TheOldestReportIsForgottenBeyondTheLimit) {
  failures_.Set(Id("x"), absl::InternalError("x"));
  failures_.Set(Id("y"), absl::InternalError("y"));
  // Reported again, x is younger than y.
  failures_.Set(Id("x"), absl::InternalError("x"));
  failures_.Set(Id("z"), absl::InternalError("z"));
  EXPECT_NE(failures_.Find(Id("x")), nullptr);
  EXPECT_EQ(failures_.Find(Id("y")), nullptr);
  EXPECT_NE(failures_.Find(Id("z")), nullptr);
}

TEST_F(FailureTableTest, AnIdThatIsPutAfterAllIsErased) {
  failures_.Set(Id("x"), absl::InternalError("x"));
  failures_.Erase(Id("x"));
  failures_.Erase(Id("x"));
  EXPECT_EQ(failures_.Find(Id("x")), nullptr);
}

}  // namespace
}  // namespace phalanx::directory
