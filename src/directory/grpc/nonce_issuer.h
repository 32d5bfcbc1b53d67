// Nonces that are good for one use within a short time, without remembering those that nobody uses:
// each carries when it was issued and a seal, so that asking for many of them fills no table.
//
// Pure; `now` is passed in. One loop.
#ifndef PHALANX_DIRECTORY_GRPC_NONCE_ISSUER_H_
#define PHALANX_DIRECTORY_GRPC_NONCE_ISSUER_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <set>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "src/common/instant.h"

namespace phalanx::directory {

inline constexpr absl::Duration kNonceLife = absl::Seconds(10);
// Redeemed nonces that have not expired yet.
inline constexpr size_t kMaxRedeemedNonces = 1 << 16;

class NonceIssuer {
 public:
  // `key`: random bytes that nobody else knows.
  explicit NonceIssuer(std::string key);

  // kNonceBytes.
  std::string Issue(Instant now);

  // OK once for each nonce of ours; then, and for any other, PermissionDenied. ResourceExhausted
  // when too many were redeemed lately. REQUIRES: whoever presents the nonce has proved himself, so
  // that strangers fill no table.
  absl::Status Redeem(absl::string_view nonce, Instant now);

 private:
  std::string Seal(absl::string_view body) const;
  void Forget(Instant now);

  const std::string key_;
  uint64_t issued_ = 0;
  std::set<std::string> redeemed_;
  std::deque<std::pair<Instant, std::string>> expiries_;  // of `redeemed_`, oldest first
};

}  // namespace phalanx::directory

#endif  // PHALANX_DIRECTORY_GRPC_NONCE_ISSUER_H_
