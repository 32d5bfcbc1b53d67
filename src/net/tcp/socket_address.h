// SocketAddress: an IPv4 or IPv6 address and port in the form that the kernel uses. A value.
#ifndef PHALANX_NET_TCP_SOCKET_ADDRESS_H_
#define PHALANX_NET_TCP_SOCKET_ADDRESS_H_

#include <sys/socket.h>

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "src/net/stream/address.h"

namespace phalanx::net {

struct SocketAddress {
  sockaddr_storage storage = {};
  socklen_t size = sizeof(sockaddr_storage);

  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage); }
  sockaddr* get() { return reinterpret_cast<sockaddr*>(&storage); }
  int family() const { return storage.ss_family; }
  // Returns "10.0.0.7:7400" or "[fe80::1%eth0]:7400". An IPv4 address mapped into IPv6 has the
  // first form.
  std::string ToString() const;

  friend bool operator==(const SocketAddress& a, const SocketAddress& b) {
    return a.ToString() == b.ToString();
  }
};

// Returns the address of a host given as a number, or an empty list for a name. Does not block.
std::vector<SocketAddress> NumericAddress(const HostPort& host_port);

// Returns the addresses of a host given by number or name, in the order in which to try them. Calls
// the resolver of the system and BLOCKS until it answers. Returns Unavailable if there is no
// address.
absl::StatusOr<std::vector<SocketAddress>> LookUpAddress(const HostPort& host_port);

}  // namespace phalanx::net

#endif  // PHALANX_NET_TCP_SOCKET_ADDRESS_H_
