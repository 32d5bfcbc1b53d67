#include "src/common/testing/status_matchers.h"

namespace phalanx::testing {
namespace {

using ::testing::Gt;
using ::testing::HasSubstr;
using ::testing::Not;

const absl::Status kError = absl::NotFoundError("object 9f is deleted");

TEST(StatusMatchersTest, MatchStatus) {
  EXPECT_THAT(absl::OkStatus(), IsOk());
  EXPECT_THAT(kError, Not(IsOk()));
  EXPECT_THAT(kError, StatusIs(absl::StatusCode::kNotFound));
  EXPECT_THAT(kError, Not(StatusIs(absl::StatusCode::kAborted)));
  EXPECT_THAT(kError, StatusIs(absl::StatusCode::kNotFound, HasSubstr("deleted")));
  EXPECT_THAT(kError, Not(StatusIs(absl::StatusCode::kNotFound, HasSubstr("evicted"))));
  EXPECT_THAT(kError, Not(StatusIs(absl::StatusCode::kAborted, HasSubstr("deleted"))));
}

TEST(StatusMatchersTest, MatchStatusOr) {
  const absl::StatusOr<int> seven = 7;
  const absl::StatusOr<int> failed = kError;
  EXPECT_THAT(seven, IsOk());
  EXPECT_THAT(seven, IsOkAndHolds(7));
  EXPECT_THAT(seven, IsOkAndHolds(Gt(6)));
  EXPECT_THAT(seven, Not(IsOkAndHolds(8)));
  EXPECT_THAT(failed, Not(IsOkAndHolds(7)));
  EXPECT_THAT(failed, StatusIs(absl::StatusCode::kNotFound, "object 9f is deleted"));
}

TEST(StatusMatchersTest, AssignTheValueOfAnOkResult) {
  PHALANX_ASSERT_OK_AND_ASSIGN(const int value, absl::StatusOr<int>(7));
  EXPECT_EQ(value, 7);
}

}  // namespace
}  // namespace phalanx::testing
