// How a stream between a node and a shard begins: who may talk to whom, and the proof that both
// know the cluster's secret. Hello, Challenge, Proof; the Welcome that follows belongs to the
// session.
//
// Before the node's proof the shard tells only what its refusals name (version, cluster, shard
// index and number) and its own proof; no session is touched. Each proof covers the whole hello and
// both nonces, under a label for each end, so that a recorded one proves nothing on another stream
// and none can be sent back to where it came from.
//
// Thread rule: pure; values of one loop.
#ifndef PHALANX_DIRECTORY_SESSION_HANDSHAKE_H_
#define PHALANX_DIRECTORY_SESSION_HANDSHAKE_H_

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
#include "src/common/ids.h"
#include "src/common/random.h"
#include "src/directory/session_link.h"

namespace phalanx::directory {

struct SessionConfig {
  std::string cluster_id = "default";
  std::string secret;
  uint32_t shard_index = 0;
  uint32_t num_shards = 1;
  uint32_t protocol_version = kProtocolVersion;
  absl::Duration lease = absl::Seconds(2);
  // How long the shard waits for a node whose stream broke, the lease at most. A node that lives is
  // back within three round trips; one that is gone is not waited for until its lease runs out.
  absl::Duration reconnect_grace = absl::Milliseconds(30);
  SessionLimits limits;
  // Where nonces come from: the system's generator, unless a simulation brings one of its own.
  std::function<void(void* out, size_t size)> nonce_bytes = SystemRandomBytes;
};

// A node's description that is longer is refused: it travels in every registration and stands in
// every drawing. Of a name, of a label's key and value together, of an address.
inline constexpr size_t kMaxNodeNameBytes = 128;
inline constexpr size_t kMaxNodeLabelBytes = 128;
inline constexpr size_t kMaxNodeAddressBytes = 264;
inline constexpr size_t kMaxNodeLabels = 16;
// So is a hello, which is kept before its node has shown the secret; the longest description fits.
inline constexpr size_t kMaxHelloBytes = 48 << 10;
static_assert(kMaxHelloBytes < kMaxGreetingBytes);
// A refusal's text ends here.
inline constexpr size_t kMaxRefusalBytes = 4 << 10;

// kNonceBytes from the configured generator.
std::string NewNonce(const SessionConfig& config);

enum class SessionEnd { kNode, kShard };
// What `end` shows on the stream that this hello and the shard's nonce began.
std::string SessionProof(absl::string_view secret, SessionEnd end, const v1::Hello& hello,
                         absl::string_view shard_nonce);

// OK, FailedPrecondition that names both sides' values, or InvalidArgument for a hello that is
// malformed.
absl::Status CheckHello(const SessionConfig& config, const v1::Hello& hello);

// A refusal as it travels, and back. What comes from outside is never OK and always a code that
// exists.
v1::ShardFrame RefusedFrame(const absl::Status& why);
absl::Status RefusedStatus(const v1::Refused& refused);

// The shard's part in the beginning of one stream.
class ShardHandshake {
 public:
  ShardHandshake(const SessionConfig& config, std::string nonce);

  // Takes the stream's next frame and returns the answer to send, if there is one. Errors, after
  // which the stream is to be refused: as CheckHello, PermissionDenied for a wrong proof,
  // InvalidArgument for a frame out of order. REQUIRES: not proven().
  absl::StatusOr<std::optional<v1::ShardFrame>> OnFrame(const v1::NodeFrame& frame);

  // The node has shown that it knows the secret.
  bool proven() const { return proven_; }
  // Keeps nothing of it for the life of the stream. REQUIRES: proven(), called once.
  v1::Hello TakeHello() { return *std::exchange(hello_, std::nullopt); }

 private:
  absl::StatusOr<std::optional<v1::ShardFrame>> OnHello(const v1::Hello& hello);

  const SessionConfig& config_;  // outlives this
  const std::string nonce_;
  std::optional<v1::Hello> hello_;
  bool proven_ = false;
};

}  // namespace phalanx::directory

#endif  // PHALANX_DIRECTORY_SESSION_HANDSHAKE_H_
