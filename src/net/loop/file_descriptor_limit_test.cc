#include "src/net/loop/file_descriptor_limit.h"

#include <sys/resource.h>

#include "gtest/gtest.h"
#include "src/common/testing/status_matchers.h"

namespace phalanx::net {
namespace {

TEST(FileDescriptorLimitTest, RisesToTheHardLimit) {
  rlimit limit;
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &limit), 0);
  const rlim_t hard = limit.rlim_max;
  limit.rlim_cur = 100;
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &limit), 0);
  EXPECT_THAT(RaiseFileDescriptorLimit(), testing::IsOkAndHolds(hard));
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &limit), 0);
  EXPECT_EQ(limit.rlim_cur, hard);
}

}  // namespace
}  // namespace phalanx::net
