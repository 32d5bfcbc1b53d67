// How two ends of a connection agree on protocol and cluster, and prove that they know the secret: a pure state machine
// over bytes, the same for both ends, used by the data plane; the session of the directory protocol carries the same
// challenge and proof in its own messages (see ProveSecret).
//
// Each side sends a hello (magic "PHLX", protocol version, cluster id, role, identity of the node, 32 random bytes) and,
// having read the other's, a proof: HMAC-SHA-256 under the cluster secret of a label, its own role and both hellos
// (RFC 2104; challenge and response as in RFC 5802 without the password hashing). Each connection's nonces are new, so a
// recorded exchange proves nothing. Without a secret the key is empty and both proofs still must match, so that a side
// with a secret refuses one without.
//
// Thread rule: a value used by one loop.
#ifndef PHALANX_NET_HANDSHAKE_H_
#define PHALANX_NET_HANDSHAKE_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "src/common/ids.h"

namespace phalanx::net {

struct HandshakeConfig {
  NodeKey self;
  // Daemons of different clusters refuse each other with both names in the message; at most 64 bytes.
  std::string cluster_id = "default";
  std::string secret;
  uint32_t protocol_version = kProtocolVersion;
};

inline constexpr size_t kNonceBytes = 32;

// HMAC-SHA-256 of (label, transcript parts, each length-prefixed) under the secret; 32 bytes.
std::string ProveSecret(absl::string_view secret, absl::string_view label,
                        absl::Span<const absl::string_view> transcript);
// Constant-time comparison.
bool ProofMatches(absl::string_view expected, absl::string_view given);

class Handshake {
 public:
  enum class Role { kDialer, kAcceptor };

  // `nonce`: kNonceBytes from SystemRandomBytes (or a seeded generator in simulation).
  Handshake(HandshakeConfig config, Role role, absl::string_view nonce);

  // Bytes to send now; empties. To be called after construction and after each Consume.
  std::string TakeOutput();

  // Feeds bytes from the peer; returns how many belonged to the handshake (the rest is the protocol's). Errors, after which the
  // connection is to be closed (the output, if any, is still sent: it tells the peer why):
  //   FailedPrecondition  other magic, protocol version or cluster id; both sides' values are named
  //   PermissionDenied    the proof is wrong
  absl::StatusOr<size_t> Consume(absl::string_view bytes);

  // The peer has proved itself and our proof has been handed out.
  bool done() const;
  // REQUIRES: done().
  const NodeKey& peer() const;

 private:
  const HandshakeConfig config_;
  const Role role_;
  std::string own_hello_;
  std::string input_;
  std::string output_;
  std::string peer_hello_;
  NodeKey peer_;
  bool done_ = false;
};

}  // namespace phalanx::net

#endif  // PHALANX_NET_HANDSHAKE_H_
