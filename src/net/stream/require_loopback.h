// RequireLoopbackWithoutSecret: a daemon without a cluster secret must be reachable only from its
// own host.
//
// Any thread.
#ifndef PHALANX_NET_STREAM_REQUIRE_LOOPBACK_H_
#define PHALANX_NET_STREAM_REQUIRE_LOOPBACK_H_

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace phalanx::net {

// Returns OK if there is a secret, or if `address` ("host:port") is on the loopback interface:
// 127.0.0.0/8, [::1] or "localhost". Returns FailedPrecondition with a remedy otherwise; any other
// name counts as another interface, regardless of what it resolves to. Returns InvalidArgument for
// an address that cannot be parsed, with or without a secret.
absl::Status RequireLoopbackWithoutSecret(absl::string_view address, absl::string_view secret);

}  // namespace phalanx::net

#endif  // PHALANX_NET_STREAM_REQUIRE_LOOPBACK_H_
