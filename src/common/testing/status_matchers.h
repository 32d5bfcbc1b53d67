// GoogleMock matchers for absl::Status and absl::StatusOr. Testonly.
//
//   EXPECT_THAT(store.Delete(id), IsOk());
//   EXPECT_THAT(store.Get(id), StatusIs(absl::StatusCode::kNotFound, HasSubstr("deleted")));
//   EXPECT_THAT(store.Size(id), IsOkAndHolds(7));
//   PHALANX_ASSERT_OK_AND_ASSIGN(auto size, store.Size(id));
#ifndef PHALANX_COMMON_TESTING_STATUS_MATCHERS_H_
#define PHALANX_COMMON_TESTING_STATUS_MATCHERS_H_

#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "src/common/status_macros.h"

namespace phalanx::testing {

namespace internal {
inline const absl::Status& GetStatus(const absl::Status& status) { return status; }
template <typename T>
const absl::Status& GetStatus(const absl::StatusOr<T>& result) {
  return result.status();
}
}  // namespace internal

MATCHER(IsOk, negation ? "is not OK" : "is OK") {
  const absl::Status& status = internal::GetStatus(arg);
  *result_listener << "which is " << status.ToString();
  return status.ok();
}

MATCHER_P(HasCode, code,
          std::string(negation ? "hasn't code " : "has code ") + absl::StatusCodeToString(code)) {
  const absl::Status& status = internal::GetStatus(arg);
  *result_listener << "which is " << status.ToString();
  return status.code() == code;
}

MATCHER_P2(HasCodeAndMessage, code, message_matcher,
           std::string(negation ? "hasn't code " : "has code ") + absl::StatusCodeToString(code) +
               " and a message that " +
               ::testing::DescribeMatcher<std::string>(message_matcher, negation)) {
  const absl::Status& status = internal::GetStatus(arg);
  *result_listener << "which is " << status.ToString();
  return status.code() == code &&
         ::testing::Matches(message_matcher)(std::string(status.message()));
}

MATCHER_P(IsOkAndHolds, value_matcher,
          negation ? "is not OK with such a value" : "is OK and holds") {
  if (!arg.ok()) {
    *result_listener << "which is " << arg.status().ToString();
    return false;
  }
  return ::testing::ExplainMatchResult(value_matcher, *arg, result_listener);
}

inline auto StatusIs(absl::StatusCode code) { return HasCode(code); }
// `message` is a matcher of std::string, or the whole text.
template <typename MessageMatcher>
auto StatusIs(absl::StatusCode code, MessageMatcher message) {
  return HasCodeAndMessage(code, std::move(message));
}

}  // namespace phalanx::testing

#define PHALANX_ASSERT_OK(expression) ASSERT_THAT((expression), ::phalanx::testing::IsOk())
#define PHALANX_EXPECT_OK(expression) EXPECT_THAT((expression), ::phalanx::testing::IsOk())

#define PHALANX_ASSERT_OK_AND_ASSIGN(target, expression)                                     \
  PHALANX_ASSERT_OK_AND_ASSIGN_NAMED_(PHALANX_STATUS_CONCAT_(phalanx_or_, __LINE__), target, \
                                      expression)
#define PHALANX_ASSERT_OK_AND_ASSIGN_NAMED_(name, target, expression) \
  auto name = (expression);                                           \
  ASSERT_TRUE(name.ok()) << name.status();                            \
  target = *std::move(name)

#endif  // PHALANX_COMMON_TESTING_STATUS_MATCHERS_H_
