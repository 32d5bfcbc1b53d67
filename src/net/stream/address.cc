#include "src/net/stream/address.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace phalanx::net {
namespace {

// Longer than any name that DNS allows.
constexpr size_t kMaxHostBytes = 255;

absl::Status Bad(absl::string_view address, absl::string_view reason) {
  // The text can come from a peer or a file, so it is escaped and cut.
  return absl::InvalidArgumentError(absl::StrCat(
      "address \"", absl::CHexEscape(address.substr(0, 2 * kMaxHostBytes)), "\": ", reason));
}

bool IsHostByte(char c) { return absl::ascii_isgraph(static_cast<unsigned char>(c)); }

}  // namespace

std::string HostPort::ToString() const {
  if (absl::StrContains(host, ':')) return absl::StrCat("[", host, "]:", port);
  return absl::StrCat(host, ":", port);
}

absl::StatusOr<HostPort> ParseHostPort(absl::string_view address) {
  // The last colon: an IPv6 address contains others.
  const size_t colon = address.rfind(':');
  if (colon == absl::string_view::npos) return Bad(address, "no port; write host:port");
  absl::string_view host = address.substr(0, colon);
  const absl::string_view digits = address.substr(colon + 1);

  uint32_t port = 0;
  if (digits.empty() || digits.size() > 5 ||
      !std::all_of(digits.begin(), digits.end(), absl::ascii_isdigit) ||
      !absl::SimpleAtoi(digits, &port) || port > 65535) {
    return Bad(address, "the port is not a number from 0 to 65535");
  }
  if (absl::StartsWith(host, "[") && absl::EndsWith(host, "]")) {
    host = host.substr(1, host.size() - 2);
  } else if (absl::StrContains(host, ':')) {
    return Bad(address, "write brackets around an IPv6 address: [::1]:7400");
  }
  if (host.empty()) return Bad(address, "no host");
  // Also keeps spaces and control characters away from the resolver.
  if (host.size() > kMaxHostBytes || !std::all_of(host.begin(), host.end(), IsHostByte)) {
    return Bad(address, "not a host name");
  }
  return HostPort{std::string(host), static_cast<uint16_t>(port)};
}

}  // namespace phalanx::net
