// RequireLoopbackWithoutSecret: the rule that a daemon without a cluster secret is reachable from
// its own host only.
//
// Any thread.
#ifndef PHALANX_NET_REQUIRE_LOOPBACK_H_
#define PHALANX_NET_REQUIRE_LOOPBACK_H_

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace phalanx::net {

// OK when there is a secret, or when `address` ("host:port") is on the loopback interface:
// 127.0.0.0/8, [::1] or "localhost". FailedPrecondition, saying what to do, otherwise; other names
// count as other interfaces, whatever they resolve to. InvalidArgument for an address that does not
// parse, with or without a secret.
absl::Status RequireLoopbackWithoutSecret(absl::string_view address, absl::string_view secret);

}  // namespace phalanx::net

#endif  // PHALANX_NET_REQUIRE_LOOPBACK_H_
