// Address: where a process listens. HostPort: a parsed Address. Values.
#ifndef PHALANX_NET_STREAM_ADDRESS_H_
#define PHALANX_NET_STREAM_ADDRESS_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace phalanx::net {

// "10.0.0.7:7400", "[fe80::1]:7400", "host.name:7400". A listener with port 0 gets a free port from
// the system.
using Address = std::string;

struct HostPort {
  // A name, or a numeric IPv4 or IPv6 address without brackets. Never empty.
  std::string host;
  uint16_t port = 0;

  // Returns "host:port", with brackets around a host that contains colons.
  std::string ToString() const;
};

// Parses "host:port" or "[ipv6]:port" with a decimal port. Returns InvalidArgument that quotes the
// text otherwise. Does not check that the host exists.
absl::StatusOr<HostPort> ParseHostPort(absl::string_view address);

}  // namespace phalanx::net

#endif  // PHALANX_NET_STREAM_ADDRESS_H_
