// Nonces that are valid for one use within a short time. Unused nonces need no memory: each one
// carries its time of issue and a seal, so requests for many nonces fill no table.
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
#include "src/common/time/instant.h"

namespace phalanx::directory {

inline constexpr absl::Duration kNonceLife = absl::Seconds(10);
// The limit of redeemed nonces that have not expired.
inline constexpr size_t kMaxRedeemedNonces = 1 << 16;

class NonceIssuer {
 public:
  // `key`: secret random bytes.
  explicit NonceIssuer(std::string key);

  // kNonceBytes.
  std::string Issue(Instant now);

  // OK once for each nonce of this issuer; PermissionDenied the second time and for any other
  // nonce. ResourceExhausted if too many were redeemed in the last seconds. REQUIRES: the presenter
  // of the nonce has proved the secret, so that strangers fill no table.
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
