// Handshake: two ends of a connection agree on protocol and cluster, and prove that they know the
// secret. A pure state machine over bytes, the same for both ends, used by the data plane. The
// session of the directory protocol carries the same challenge and proof in its own messages (see
// ProveSecret).
//
// Each side sends a hello (magic "PHLX", protocol version, cluster id, role, identity of the node,
// 32 random bytes). After it has read the hello of the other side, it sends a proof: HMAC-SHA-256
// under the cluster secret of a label, its own role and both hellos (RFC 2104; challenge and
// response as in RFC 5802 without the password hashing). Each connection has new nonces, so a
// recorded exchange proves nothing. The role prevents an attacker from returning a side's own proof
// to it. Without a secret the key is empty and both proofs must still match, so a side with a
// secret rejects a side without one.
//
// A side that answers a hello sends its proof before it has seen one: an attacker can test guesses
// of the secret against that proof offline. The secret must therefore be random, not a password.
//
// Thread rule: a value used by one loop.
#ifndef PHALANX_NET_STREAM_HANDSHAKE_H_
#define PHALANX_NET_STREAM_HANDSHAKE_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "src/common/ids/ids.h"
#include "src/common/random.h"

namespace phalanx::net {

inline constexpr size_t kMaxClusterIdBytes = 64;

struct HandshakeConfig {
  NodeKey self;
  // Daemons of different clusters reject each other; the error names both ids. At most
  // kMaxClusterIdBytes, the rest is cut off.
  std::string cluster_id = "default";
  std::string secret;
  uint32_t protocol_version = kProtocolVersion;
  // The source of StreamHandshake's nonces; a seeded generator in simulation.
  std::function<void(void* out, size_t size)> nonce_bytes = SystemRandomBytes;
};

inline constexpr size_t kNonceBytes = 32;
inline constexpr size_t kProofBytes = 32;

// Returns the HMAC-SHA-256 of (label, transcript parts, each length-prefixed) under the secret:
// kProofBytes bytes.
std::string ProveSecret(absl::string_view secret, absl::string_view label,
                        absl::Span<const absl::string_view> transcript);
// Compares in constant time.
bool ProofMatches(absl::string_view expected, absl::string_view given);

class Handshake {
 public:
  enum class Role { kDialer, kAcceptor };

  // `nonce`: kNonceBytes unpredictable bytes.
  Handshake(HandshakeConfig config, Role role, absl::string_view nonce);

  // Takes the bytes to send now. Call it after construction and after each Consume.
  std::string TakeOutput();

  // Processes bytes from the peer. Returns the number of bytes that belonged to the handshake; the
  // rest belongs to the protocol. After an error the caller sends the remaining output, from which
  // the peer learns the reason, and closes the connection. Errors:
  //     FailedPrecondition  other magic, protocol version or cluster id (the text names both
  //                         values), or a peer of the same role
  //     PermissionDenied    the proof is wrong
  absl::StatusOr<size_t> Consume(absl::string_view bytes);

  // True if the peer has proved itself and TakeOutput has returned our proof.
  bool done() const { return state_ == State::kDone && output_.empty(); }
  // REQUIRES: done().
  const NodeKey& peer() const { return peer_; }

 private:
  enum class State { kHello, kProof, kDone, kFailed };

  // Each examines `input_`. Returns true if the state has advanced.
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

#endif  // PHALANX_NET_STREAM_HANDSHAKE_H_
