#include "src/directory/grpc/nonce_issuer.h"

#include <utility>

#include "src/common/io/wire.h"
#include "src/net/stream/handshake.h"

namespace phalanx::directory {
namespace {

// The time of issue and a serial number; the seal follows.
constexpr size_t kBodyBytes = 16;
static_assert(kBodyBytes < net::kNonceBytes);

}  // namespace

NonceIssuer::NonceIssuer(std::string key) : key_(std::move(key)) {}

std::string NonceIssuer::Issue(Instant now) {
  std::string nonce;
  ByteWriter out(nonce);
  out.U64(static_cast<uint64_t>(now.nanos()));
  // Two nonces of the same moment must differ.
  out.U64(++issued_);
  return nonce + Seal(nonce);
}

absl::Status NonceIssuer::Redeem(absl::string_view nonce, Instant now) {
  if (nonce.size() != net::kNonceBytes ||
      // Before the time is read: without the seal a caller could choose the time.
      !net::ProofMatches(Seal(nonce.substr(0, kBodyBytes)), nonce.substr(kBodyBytes))) {
    return absl::PermissionDeniedError("the nonce is not this shard's");
  }
  ByteReader in(nonce);
  const Instant issued = Instant::FromNanos(static_cast<int64_t>(in.U64()));
  if (now - issued > kNonceLife) return absl::PermissionDeniedError("the nonce has expired");
  Forget(now);
  if (redeemed_.size() >= kMaxRedeemedNonces) {
    return absl::ResourceExhaustedError("too many calls in the last seconds");
  }
  if (!redeemed_.insert(std::string(nonce)).second) {
    return absl::PermissionDeniedError("the nonce was used before");
  }
  expiries_.emplace_back(now + kNonceLife, std::string(nonce));
  return absl::OkStatus();
}

std::string NonceIssuer::Seal(absl::string_view body) const {
  return net::ProveSecret(key_, "phalanx tools nonce", {body})
      .substr(0, net::kNonceBytes - kBodyBytes);
}

// Drops expired nonces: Redeem rejects them by their age.
void NonceIssuer::Forget(Instant now) {
  while (!expiries_.empty() && now > expiries_.front().first) {
    redeemed_.erase(expiries_.front().second);
    expiries_.pop_front();
  }
}

}  // namespace phalanx::directory
