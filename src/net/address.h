// Address: where something listens. HostPort: an Address taken apart. Values.
#ifndef PHALANX_NET_ADDRESS_H_
#define PHALANX_NET_ADDRESS_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace phalanx::net {

// "10.0.0.7:7400", "[fe80::1]:7400", "host.name:7400". For a listener, port 0 asks the system for
// one.
using Address = std::string;

struct HostPort {
  // A name, or a numeric IPv4 or IPv6 address without brackets. Never empty.
  std::string host;
  uint16_t port = 0;

  // "host:port", with brackets around a host that has colons in it.
  std::string ToString() const;
};

// InvalidArgument, with the text quoted, unless it is "host:port" or "[ipv6]:port" with a decimal
// port. Does not look at whether the host exists.
absl::StatusOr<HostPort> ParseHostPort(absl::string_view address);

}  // namespace phalanx::net

#endif  // PHALANX_NET_ADDRESS_H_
