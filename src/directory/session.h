// The session between a node and a shard: numbering, acknowledgement, batching, resumption, handshake. Two pure state
// machines, one for each end; the order of frames is told in protos/phalanx/v1/directory.proto.
//
// What a user of either end sees: messages handed to Send arrive at the other end once, in order, for as long as the session
// lives, whatever happens to the streams below it. When the session ends (fenced, or the shard is another incarnation),
// everything that was not delivered is void, the user is told, and starts again from its own state.
//
// Invariants
//  1. A message is delivered at most once per session, and only when all earlier ones were.
//  2. `unacknowledged` holds exactly the messages of this session that the peer has not acknowledged.
//  3. Frames are handed out one at a time (NextFrame), so a slow stream makes batches longer, bounded by kMaxBatchBytes.
//
// Thread rule: no thread, lock or clock inside; `now` is passed in. Owned by the node's DirectoryClient or the shard's Shard.
#ifndef PHALANX_DIRECTORY_SESSION_H_
#define PHALANX_DIRECTORY_SESSION_H_

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "phalanx/v1/directory.pb.h"
#include "src/common/ids.h"
#include "src/common/instant.h"
#include "src/common/random.h"

namespace phalanx::directory {

struct SessionConfig {
  std::string cluster_id = "default";
  std::string secret;
  uint32_t shard_index = 0;
  uint32_t num_shards = 1;
  uint32_t protocol_version = kProtocolVersion;
  absl::Duration lease = absl::Seconds(2);
};

// A batch stops growing beyond so many bytes of messages (one message may be larger).
inline constexpr size_t kMaxBatchBytes = 1 << 20;

// The node's end.
class NodeSession {
 public:
  enum class Event {
    kRegister,   // a new session is up: Send the whole state now, RegisterBegin to RegisterEnd, before anything else
    kResumed,    // the same session goes on
  };

  NodeSession(SessionConfig config, v1::NodeInfo self);

  // A stream has been opened: the next frame is a Hello with this nonce.
  void StreamOpened(absl::string_view nonce, Instant now);
  // The stream broke. What is unacknowledged is kept for resumption.
  void StreamClosed(Instant now);

  // Takes a frame from the shard. Delivered messages and events are read afterwards by TakeMessages / TakeEvents. Errors, after which the
  // stream is to be closed: FailedPrecondition and PermissionDenied (refused; the text names both sides' values),
  // InvalidArgument (a frame out of order or malformed).
  absl::Status OnFrame(v1::ShardFrame frame, Instant now);
  std::vector<v1::ShardMessage> TakeMessages();
  std::optional<Event> TakeEvent();

  // Queues a message for the session. REQUIRES: established() ever was (before, state is told by registration).
  void Send(v1::NodeMessage message);

  // The next frame to put on a writable stream, if there is one: handshake, messages, or an acknowledgement / heartbeat that is due.
  std::optional<v1::NodeFrame> NextFrame(Instant now);
  // When NextFrame would have a heartbeat or acknowledgement to send, or silence of the shard ends the stream.
  Instant NextDeadline() const;
  // True when the shard has been silent for a lease: close the stream and open another.
  bool ShardSilent(Instant now) const;

  // Streams carry messages both ways.
  bool established() const;
  size_t unacknowledged() const;
  uint64_t shard_incarnation() const;
  absl::Duration lease() const;

 private:
  // Laid out by the implementation.
};

// The shard's end of one node's session; made when the Hello has been accepted.
class ShardSession;

}  // namespace phalanx::directory

#endif  // PHALANX_DIRECTORY_SESSION_H_
