// How a stream between a node and a shard begins: Hello, Challenge, Proof. The shard checks that
// the two ends fit together, and both prove that they know the cluster's secret. The Welcome that
// follows belongs to the session.
//
// Before the node's proof the shard discloses only its own proof and the values in its refusals
// (version, cluster, shard index and number), and it touches no session. Each proof covers the
// whole hello and both nonces, under a label for each end. So a recorded proof is invalid on
// another stream, and no proof can be reflected to its sender.
//
// Thread rule: pure; values of one loop.
#ifndef PHALANX_DIRECTORY_SESSION_SESSION_HANDSHAKE_H_
#define PHALANX_DIRECTORY_SESSION_SESSION_HANDSHAKE_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "phalanx/v1/directory.pb.h"
#include "src/common/ids/ids.h"
#include "src/common/random.h"
#include "src/directory/session/session_link.h"

namespace phalanx::directory {

struct SessionConfig {
  std::string cluster_id = "default";
  std::string secret;
  uint32_t shard_index = 0;
  uint32_t num_shards = 1;
  uint32_t protocol_version = kProtocolVersion;
  absl::Duration lease = absl::Seconds(2);
  // How long the shard waits for a node whose stream broke, besides three round trips of that
  // stream, within which a live node reconnects; at most the lease. So the shard does not wait a
  // whole lease for a dead node.
  absl::Duration reconnect_grace = absl::Milliseconds(30);
  SessionLimits limits;
  // The source of nonces: the system's generator, unless a simulation provides its own.
  std::function<void(void* out, size_t size)> nonce_bytes = SystemRandomBytes;
};

// Limits of a node's description: of a name, of a label's key and value together, of an address.
// The shard refuses longer ones, because the description travels in every registration and appears
// in every drawing.
inline constexpr size_t kMaxNodeNameBytes = 128;
inline constexpr size_t kMaxNodeLabelBytes = 128;
inline constexpr size_t kMaxNodeAddressBytes = 264;
inline constexpr size_t kMaxNodeLabels = 16;
// The limit of a hello, which the shard keeps before the node has shown the secret; the longest
// description fits.
inline constexpr size_t kMaxHelloBytes = 48 << 10;
static_assert(kMaxHelloBytes < kMaxGreetingBytes);
// The shard cuts the text of a refusal here.
inline constexpr size_t kMaxRefusalBytes = 4 << 10;

// kNonceBytes from the configured generator.
std::string NewNonce(const SessionConfig& config);

enum class SessionEnd { kNode, kShard };
// The proof that `end` shows on the stream that began with this hello and the shard's nonce.
std::string SessionProof(absl::string_view secret, SessionEnd end, const v1::Hello& hello,
                         absl::string_view shard_nonce);

// OK, FailedPrecondition that names both sides' values, or InvalidArgument if the hello is
// malformed.
absl::Status CheckHello(const SessionConfig& config, const v1::Hello& hello);

// A refusal as it travels, and back. A code from the peer never becomes OK; a code that does not
// exist becomes Unknown.
v1::ShardFrame RefusedFrame(const absl::Status& why);
absl::Status RefusedStatus(const v1::Refused& refused);

// The shard's part of one stream's handshake.
class ShardHandshake {
 public:
  ShardHandshake(const SessionConfig& config, std::string nonce);

  // Takes the stream's next frame and returns the answer to send, if there is one. The caller
  // refuses the stream on an error: those of CheckHello, PermissionDenied for a wrong proof,
  // InvalidArgument for a frame out of order. REQUIRES: not proven().
  absl::StatusOr<std::optional<v1::ShardFrame>> OnFrame(const v1::NodeFrame& frame);

  // The node has shown that it knows the secret.
  bool proven() const { return proven_; }
  // Moves the hello out, so that it is not kept for the life of the stream. REQUIRES: proven(),
  // called once.
  v1::Hello TakeHello() { return *std::exchange(hello_, std::nullopt); }

 private:
  absl::StatusOr<std::optional<v1::ShardFrame>> OnHello(const v1::Hello& hello);

  const SessionConfig& config_;  // outlives this
  const std::string nonce_;
  std::optional<v1::Hello> hello_;
  bool proven_ = false;
};

}  // namespace phalanx::directory

#endif  // PHALANX_DIRECTORY_SESSION_SESSION_HANDSHAKE_H_
