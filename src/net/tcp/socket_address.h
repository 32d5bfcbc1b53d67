// SocketAddress: an IPv4 or IPv6 address and port as the kernel takes it. A value.
#ifndef PHALANX_NET_TCP_SOCKET_ADDRESS_H_
#define PHALANX_NET_TCP_SOCKET_ADDRESS_H_

#include <sys/socket.h>

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "src/net/address.h"

namespace phalanx::net {

struct SocketAddress {
  sockaddr_storage storage = {};
  socklen_t size = sizeof(sockaddr_storage);

  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage); }
  sockaddr* get() { return reinterpret_cast<sockaddr*>(&storage); }
  int family() const { return storage.ss_family; }
  // "10.0.0.7:7400" or "[fe80::1%eth0]:7400"; an IPv4 address mapped into IPv6 as the former.
  std::string ToString() const;

  friend bool operator==(const SocketAddress& a, const SocketAddress& b) {
    return a.ToString() == b.ToString();
  }
};

// The addresses of a host that is given as a number: one, or none. Does not block.
std::vector<SocketAddress> NumericAddress(const HostPort& host_port);

// The addresses of a host by number or name, in the order in which to try them. Asks the system's
// resolver and BLOCKS for as long as that takes. Unavailable when there is none.
absl::StatusOr<std::vector<SocketAddress>> LookUpAddress(const HostPort& host_port);

}  // namespace phalanx::net

#endif  // PHALANX_NET_TCP_SOCKET_ADDRESS_H_
