#include "src/net/push/unsent_limit.h"

#include "gtest/gtest.h"

namespace phalanx::net {
namespace {

constexpr absl::Duration kInterval = absl::Milliseconds(100);
constexpr absl::Duration kRoundTrip = absl::Milliseconds(10);

TEST(UnsentLimit, IsTwiceTheRateTimesTheRoundTrip) {
  UnsentLimit limit;
  limit.Wrote(4 << 20);
  limit.Wrote(4 << 20);
  EXPECT_EQ(limit.EndInterval(kInterval, kRoundTrip), 2 * (size_t{8} << 20) / 10);
}

TEST(UnsentLimit, StaysWithinItsBounds) {
  UnsentLimit limit;
  limit.Wrote(1);
  EXPECT_EQ(limit.EndInterval(kInterval, kRoundTrip), UnsentLimit::kLeastBytes);
  limit.Wrote(size_t{1} << 30);
  EXPECT_EQ(limit.EndInterval(kInterval, kRoundTrip), UnsentLimit::kMostBytes);
}

TEST(UnsentLimit, IsNotMeasuredInAnIntervalWithAWaitOrWithoutARoundTrip) {
  UnsentLimit limit;
  limit.Wrote(4 << 20);
  limit.Waited();
  EXPECT_EQ(limit.EndInterval(kInterval, kRoundTrip), std::nullopt);
  limit.Wrote(4 << 20);
  EXPECT_EQ(limit.EndInterval(kInterval, absl::ZeroDuration()), std::nullopt);
  EXPECT_EQ(limit.EndInterval(kInterval, kRoundTrip), UnsentLimit::kLeastBytes)
      << "bytes of earlier intervals do not count";
}

}  // namespace
}  // namespace phalanx::net
