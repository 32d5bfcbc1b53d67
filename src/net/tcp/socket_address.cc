#include "src/net/tcp/socket_address.h"

#include <netdb.h>
#include <netinet/in.h>

#include <cstring>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"

namespace phalanx::net {
namespace {

// Returns 0 or an error of getaddrinfo.
int GetAddresses(const HostPort& host_port, int flags, std::vector<SocketAddress>& addresses) {
  addrinfo hints = {};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  // Without it getaddrinfo would look up the port as the name of a service.
  hints.ai_flags = flags | AI_NUMERICSERV;
  addrinfo* list = nullptr;
  const int error =
      getaddrinfo(host_port.host.c_str(), absl::StrCat(host_port.port).c_str(), &hints, &list);
  if (error != 0) return error;
  for (const addrinfo* at = list; at != nullptr; at = at->ai_next) {
    SocketAddress& address = addresses.emplace_back();
    std::memcpy(&address.storage, at->ai_addr, at->ai_addrlen);
    address.size = at->ai_addrlen;
  }
  freeaddrinfo(list);
  return 0;
}

}  // namespace

std::string SocketAddress::ToString() const {
  char host[NI_MAXHOST], port[NI_MAXSERV];
  // Numeric only, so that this never blocks.
  if (getnameinfo(get(), size, host, sizeof(host), port, sizeof(port),
                  NI_NUMERICHOST | NI_NUMERICSERV) != 0) {
    return "unknown address";
  }
  // A socket on "[::]" sees IPv4 peers as mapped addresses, which are printed as IPv4.
  const absl::string_view mapped = absl::StripPrefix(host, "::ffff:");
  if (family() == AF_INET6 && mapped.size() == std::strlen(host)) {
    return absl::StrCat("[", host, "]:", port);
  }
  return absl::StrCat(mapped, ":", port);
}

std::vector<SocketAddress> NumericAddress(const HostPort& host_port) {
  std::vector<SocketAddress> addresses;
  GetAddresses(host_port, AI_NUMERICHOST, addresses);
  return addresses;
}

absl::StatusOr<std::vector<SocketAddress>> LookUpAddress(const HostPort& host_port) {
  std::vector<SocketAddress> addresses;
  const int error = GetAddresses(host_port, 0, addresses);
  if (error != 0 || addresses.empty()) {
    return absl::UnavailableError(absl::StrCat("cannot resolve ", host_port.ToString(), ": ",
                                               error == 0 ? "no address" : gai_strerror(error)));
  }
  return addresses;
}

}  // namespace phalanx::net
