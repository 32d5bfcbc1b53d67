#include "src/net/stream/address.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "src/common/testing/status_matchers.h"

namespace phalanx::net {
namespace {

using ::phalanx::testing::StatusIs;
using ::testing::HasSubstr;

TEST(AddressTest, ParsesAndFormatsHostAndPort) {
  struct Case {
    const char* text;
    const char* host;
    int port;
  };
  for (const Case& c : {Case{"10.0.0.7:7400", "10.0.0.7", 7400},
                        {"[fe80::1]:0", "fe80::1", 0},
                        {"[::1%lo]:1", "::1%lo", 1},
                        {"host.name:65535", "host.name", 65535}}) {
    PHALANX_ASSERT_OK_AND_ASSIGN(const HostPort parsed, ParseHostPort(c.text));
    EXPECT_EQ(parsed.host, c.host);
    EXPECT_EQ(parsed.port, c.port);
    EXPECT_EQ(parsed.ToString(), c.text);
  }
}

TEST(AddressTest, RefusesInvalidAddressesWithAReason) {
  struct Case {
    std::string text;
    const char* reason;
  };
  for (const Case& c : {Case{"", "no port"},
                        {"host", "no port"},
                        {":7400", "no host"},
                        {"[]:7400", "no host"},
                        {"host:", "the port"},
                        {"host:65536", "the port"},
                        {"host:-1", "the port"},
                        {"host:+1", "the port"},
                        {"host: 1", "the port"},
                        {"host:1x", "the port"},
                        {"host:000000001", "the port"},
                        {"::1:7400", "brackets"},
                        {"a b:1", "not a host"},
                        {std::string("a\0b:1", 5), "not a host"},
                        {std::string(300, 'x') + ":1", "not a host"}}) {
    EXPECT_THAT(ParseHostPort(c.text),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(c.reason)))
        << c.text;
  }
}

}  // namespace
}  // namespace phalanx::net
