// How two ends of a connection agree on protocol and cluster, and prove that they know the secret:
// a pure state machine over bytes, the same for both ends, used by the data plane; the session of
// the directory protocol carries the same challenge and proof in its own messages (see
// ProveSecret).
//
// Each side sends a hello (magic "PHLX", protocol version, cluster id, role, identity of the node,
// 32 random bytes) and, having read the other's, a proof: HMAC-SHA-256 under the cluster secret of
// a label, its own role and both hellos (RFC 2104; challenge and response as in RFC 5802 without
// the password hashing). Each connection's nonces are new, so a recorded exchange proves nothing,
// and the role keeps a side from being shown its own proof. Without a secret the key is empty and
// both proofs still must match, so that a side with a secret refuses one without. Who answers a
// hello shows a proof before he has seen one: a secret that can be guessed can be tried against it
// offline. It must be a random one, not a password.
//
// Thread rule: a value used by one loop.
#ifndef PHALANX_NET_HANDSHAKE_H_
#define PHALANX_NET_HANDSHAKE_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "src/common/ids.h"
#include "src/common/random.h"

namespace phalanx::net {

inline constexpr size_t kMaxClusterIdBytes = 64;

struct HandshakeConfig {
  NodeKey self;
  // Daemons of different clusters refuse each other with both names in the message; at most
  // kMaxClusterIdBytes, the rest is cut off.
  std::string cluster_id = "default";
  std::string secret;
  uint32_t protocol_version = kProtocolVersion;
  // Where StreamHandshake's nonces come from; a seeded generator in simulation.
  std::function<void(void* out, size_t size)> nonce_bytes = SystemRandomBytes;
};

inline constexpr size_t kNonceBytes = 32;
inline constexpr size_t kProofBytes = 32;

// HMAC-SHA-256 of (label, transcript parts, each length-prefixed) under the secret; kProofBytes.
std::string ProveSecret(absl::string_view secret, absl::string_view label,
                        absl::Span<const absl::string_view> transcript);
// Constant-time comparison.
bool ProofMatches(absl::string_view expected, absl::string_view given);

class Handshake {
 public:
  enum class Role { kDialer, kAcceptor };

  // `nonce`: kNonceBytes that nobody can foresee.
  Handshake(HandshakeConfig config, Role role, absl::string_view nonce);

  // Bytes to send now; empties. To be called after construction and after each Consume.
  std::string TakeOutput();

  // Feeds bytes from the peer; returns how many belonged to the handshake (the rest is the
  // protocol's). Errors, after which the connection is to be closed (the output, if any, is still
  // sent: it tells the peer why):
  //   FailedPrecondition  other magic, protocol version or cluster id (both sides' values are
  //                       named), or an end of the same role
  //   PermissionDenied    the proof is wrong
  absl::StatusOr<size_t> Consume(absl::string_view bytes);

  // The peer has proved itself and our proof has been handed out.
  bool done() const { return state_ == State::kDone && output_.empty(); }
  // REQUIRES: done().
  const NodeKey& peer() const { return peer_; }

 private:
  enum class State { kHello, kProof, kDone, kFailed };

  // Each looks at `input_`; true when it was enough to go on to the next state.
  absl::StatusOr<bool> TakeHello();
  absl::StatusOr<bool> TakeProof();
  absl::Status CheckHelloStart() const;
  absl::Status CheckHello(absl::string_view cluster_id, uint8_t role) const;
  std::string Proof(Role prover) const;

  const HandshakeConfig config_;
  const Role role_;
  const std::string own_hello_;
  State state_ = State::kHello;
  std::string input_;
  std::string output_;
  std::string peer_hello_;
  NodeKey peer_;
};

}  // namespace phalanx::net

#endif  // PHALANX_NET_HANDSHAKE_H_
