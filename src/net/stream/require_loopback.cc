#include "src/net/stream/require_loopback.h"

#include <arpa/inet.h>
#include <netinet/in.h>

#include <string>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "src/common/status_macros.h"
#include "src/net/stream/address.h"

namespace phalanx::net {
namespace {

bool IsLoopback(const std::string& host) {
  // Names are not resolved: what a name resolves to can change after this check.
  if (absl::AsciiStrToLower(host) == "localhost") return true;
  in_addr v4;
  // All of 127.0.0.0/8 is loopback, not only 127.0.0.1.
  if (inet_pton(AF_INET, host.c_str(), &v4) == 1) return (ntohl(v4.s_addr) >> 24) == 127;
  in6_addr v6;
  return inet_pton(AF_INET6, host.c_str(), &v6) == 1 && IN6_IS_ADDR_LOOPBACK(&v6);
}

}  // namespace

absl::Status RequireLoopbackWithoutSecret(absl::string_view address, absl::string_view secret) {
  PHALANX_ASSIGN_OR_RETURN(const HostPort parsed, ParseHostPort(address));
  if (!secret.empty() || IsLoopback(parsed.host)) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("listening on ", parsed.ToString(),
                   " would let every host on that network read and delete objects: set a cluster "
                   "secret, or listen on 127.0.0.1"));
}

}  // namespace phalanx::net
