#include "src/net/stream/require_loopback.h"

#include "gtest/gtest.h"
#include "src/common/testing/status_matchers.h"

namespace phalanx::net {
namespace {

using ::phalanx::testing::IsOk;
using ::phalanx::testing::StatusIs;
using ::testing::HasSubstr;

TEST(RequireLoopbackTest, LoopbackNeedsNoSecret) {
  for (const char* address :
       {"127.0.0.1:7400", "127.9.8.7:0", "[::1]:7400", "localhost:1", "LocalHost:1"}) {
    EXPECT_THAT(RequireLoopbackWithoutSecret(address, ""), IsOk()) << address;
  }
}

TEST(RequireLoopbackTest, EverythingElseDoes) {
  for (const char* address : {"0.0.0.0:7400", "10.0.0.1:1", "128.0.0.1:1", "[::]:7400", "[::2]:1",
                              "[::ffff:127.0.0.1]:1", "host.name:1", "localhost.evil:1"}) {
    EXPECT_THAT(RequireLoopbackWithoutSecret(address, ""),
                StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("set a cluster secret")))
        << address;
    EXPECT_THAT(RequireLoopbackWithoutSecret(address, "secret"), IsOk()) << address;
  }
}

TEST(RequireLoopbackTest, AnAddressMustParse) {
  EXPECT_THAT(RequireLoopbackWithoutSecret("7400", "secret"),
              StatusIs(absl::StatusCode::kInvalidArgument));
}

}  // namespace
}  // namespace phalanx::net
