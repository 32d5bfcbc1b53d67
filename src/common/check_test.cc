#include "src/common/check.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "src/common/status_macros.h"
#include "src/common/testing/status_matchers.h"

namespace phalanx {
namespace {

using ::phalanx::testing::IsOkAndHolds;
using ::phalanx::testing::StatusIs;
using ::testing::HasSubstr;

TEST(CheckTest, AbortsWithPlaceConditionAndMessage) {
  const int slots = 3;
  EXPECT_DEATH(PHALANX_CHECK(slots == 4, "four were reserved"),
               "check_test.cc:[0-9]+: check failed: slots == 4: four were reserved");
}

TEST(CheckTest, DoesNotEvaluateTheMessageOfATrueCondition) {
  bool evaluated = false;
  const auto message = [&evaluated] {
    evaluated = true;
    return "";
  };
  PHALANX_CHECK(true, message());
  EXPECT_FALSE(evaluated);
}

absl::StatusOr<int> Half(int n) {
  if (n % 2 != 0) return absl::InvalidArgumentError("odd");
  return n / 2;
}

absl::StatusOr<int> Quarter(int n) {
  PHALANX_ASSIGN_OR_RETURN(const int half, Half(n));
  PHALANX_ASSIGN_OR_RETURN(const int quarter, Half(half));
  PHALANX_RETURN_IF_ERROR(quarter > 0 ? absl::OkStatus() : absl::OutOfRangeError("zero"));
  return quarter;
}

TEST(StatusMacrosTest, ReturnTheFirstError) {
  EXPECT_THAT(Quarter(8), IsOkAndHolds(2));
  EXPECT_THAT(Quarter(7), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("odd")));
  EXPECT_THAT(Quarter(6), StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(Quarter(0), StatusIs(absl::StatusCode::kOutOfRange));
}

}  // namespace
}  // namespace phalanx
