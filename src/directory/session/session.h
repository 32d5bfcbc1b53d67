// The session between a node and a shard: handshake, numbering, acknowledgement, batching,
// resumption. Two pure state machines, one for each end; protos/phalanx/v1/directory.proto defines
// the order of frames.
//
// The guarantee for a user of either end: each message passed to Send arrives at the other end
// once, in order, as long as the session lives, whatever happens to the streams below it. A session
// ends if it is fenced, if too much is unacknowledged, or if the shard has a new incarnation. Then
// every undelivered message is void, the session notifies the user, and the user starts again from
// its own state.
//
// Invariants
//  1. A message is delivered at most once per session, and only after all earlier ones.
//  2. `unacknowledged` counts exactly the messages of this session that the peer has not
//     acknowledged.
//  3. Frames are taken one at a time (NextFrame), so a slow stream makes batches longer, bounded by
//     kMaxBatchBytes.
//
// Thread rule: no thread, lock or clock inside; `now` is passed in. Owned by the node's
// DirectoryClient or the shard's Shard.
#ifndef PHALANX_DIRECTORY_SESSION_SESSION_H_
#define PHALANX_DIRECTORY_SESSION_SESSION_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "phalanx/v1/directory.pb.h"
#include "src/common/ids/ids.h"
#include "src/common/time/instant.h"
#include "src/directory/session/session_handshake.h"
#include "src/directory/session/session_link.h"

namespace phalanx::directory {

// The node's end.
class NodeSession {
 public:
  enum class Event {
    kRegister,  // a new session is up: Send the whole state now, RegisterBegin to RegisterEnd,
                // before anything else
    kResumed,   // the same session continues
  };

  NodeSession(SessionConfig config, v1::NodeInfo self);

  // A stream was opened: the next frame is a Hello with this nonce.
  void StreamOpened(absl::string_view nonce, Instant now);
  // The stream broke. The session keeps the unacknowledged messages for resumption.
  void StreamClosed(Instant now);

  // Takes a frame from the shard. Afterwards the caller reads events by TakeEvent, then delivered
  // messages by TakeMessages. The caller closes the stream on an error: FailedPrecondition and
  // PermissionDenied (refused; the text names both sides' values), InvalidArgument (a frame out of
  // order or malformed), or any other code in the shard's refusal.
  absl::Status OnFrame(v1::ShardFrame frame, Instant now);
  std::optional<Event> TakeEvent();
  google::protobuf::RepeatedPtrField<v1::ShardMessage> TakeMessages();

  // Queues a message for the session; drops the message if there is no session (before the first
  // Welcome, after an overflow).
  void Send(v1::NodeMessage&& message);

  // The next frame to put on a writable stream, or nullptr: handshake, messages, or an
  // acknowledgement / heartbeat that is due. It refers to the queued messages, and is valid until
  // the next call.
  const v1::NodeFrame* NextFrame(Instant now);
  // The last frame before a node leaves for good: the queued messages, and a goodbye. nullptr if
  // the session is not established. Valid as that of NextFrame.
  const v1::NodeFrame* LastFrame(Instant now);
  // When NextFrame has a frame (in the past, if it has one now), or when silence of the shard ends
  // the stream. Infinite without a stream.
  Instant NextDeadline() const;
  // Only the deadline of silence: the one deadline that matters while the stream takes no frame.
  Instant SilenceDeadline() const;
  // True if the shard has been silent for a lease: close the stream and open another.
  bool ShardSilent(Instant now) const { return now >= SilenceDeadline(); }
  // True if too much is unacknowledged: close the stream and open another, which requests a new
  // session.
  bool overflowed() const { return link_.overflowed(); }

  // The stream carries messages in both directions.
  bool established() const { return phase_ == Phase::kEstablished; }
  size_t unacknowledged() const { return link_.unacknowledged(); }
  // The number of messages that were too long to be sent.
  uint64_t oversized() const { return link_.oversized(); }
  // 0 before the first Welcome.
  uint64_t shard_incarnation() const { return shard_incarnation_; }
  // As the shard's Welcome says; before it, as configured.
  absl::Duration lease() const { return link_.lease(); }
  // A moment by this node's clock before which the shard cannot have heard from it last: when the
  // latest frame that the shard is known to have received in this session was sent.
  Instant heard() const { return heard_; }

 private:
  enum class Phase {
    kNoStream,
    kHelloDue,
    kChallengeAwaited,
    kProofDue,
    kWelcomeAwaited,
    kEstablished,
  };

  absl::Status OnChallenge(const v1::Challenge& challenge);
  absl::Status OnBatch(v1::ShardBatch& batch, Instant now);
  absl::Status OnWelcome(const v1::Welcome& welcome, Instant now);
  v1::NodeFrame HelloFrame();
  v1::NodeFrame ProofFrame() const;

  const SessionConfig config_;
  const v1::NodeInfo self_;

  // Of this stream.
  Phase phase_ = Phase::kNoStream;
  std::string nonce_;
  Instant opened_;
  v1::Hello hello_;
  std::string shard_nonce_;

  // Of this session; id 0: none.
  SessionId session_id_ = 0;
  uint64_t shard_incarnation_ = 0;
  Instant heard_;
  SessionLink<v1::NodeMessage, v1::ShardMessage> link_;
  std::optional<Event> event_;
};

// The shard's end of one node's session; created when a node has proved the secret and cannot
// resume another session.
class ShardSession {
 public:
  ShardSession(SessionId id, uint64_t shard_incarnation, const SessionConfig& config,
               v1::NodeInfo node, Instant now);

  // True if the node that sent this hello can resume the session.
  bool CanResume(const v1::Hello& hello) const;
  // A stream of this node has proved the secret. The next frame is the Welcome, with `resumed`
  // unless this is the session's first stream. Replaces an earlier stream. `round_trip`: the
  // stream's, zero if unknown. REQUIRES: CanResume(hello), or no stream before.
  void StreamOpened(const v1::Hello& hello, Instant now, absl::Duration round_trip);
  void StreamClosed(Instant now);

  // Takes a frame after the proof. InvalidArgument if the frame is out of order or malformed: close
  // the stream.
  absl::Status OnFrame(v1::NodeFrame frame, Instant now);
  google::protobuf::RepeatedPtrField<v1::NodeMessage> TakeMessages() {
    return link_.TakeDelivered();
  }

  // Queues a message, with or without a stream.
  void Send(v1::ShardMessage&& message) { link_.Send(std::move(message)); }

  // The next frame to put on a writable stream, or nullptr. Valid as a NodeSession's.
  const v1::ShardFrame* NextFrame(Instant now);
  // When NextFrame has a frame (in the past, if it has one now), or when the session expires.
  Instant NextDeadline() const;

  // When the node has been silent for the lease, or without a stream for the grace: the caller then
  // fences the session.
  Instant ExpiresAt() const;
  bool Expired(Instant now) const { return now >= ExpiresAt(); }
  // The reason of the expiry is the lease.
  bool Silent(Instant now) const { return now >= link_.SilentAt(); }
  // The node said goodbye: the session ends.
  bool ended() const { return ended_; }
  // Too much is unacknowledged: the session ends, and the node registers again.
  bool overflowed() const { return link_.overflowed(); }
  // The shard did not read for a while (the process was stopped): the silence does not count
  // against the node.
  void Forgive(Instant now);
  // The shard did not read for a part of the grace: the grace starts over.
  void AwaitReconnect(Instant now);
  // How long the session lasts without a stream: the configured grace, and three round trips.
  absl::Duration grace() const { return configured_grace_ + 3 * round_trip_; }

  bool connected() const { return link_.attached(); }
  size_t unacknowledged() const { return link_.unacknowledged(); }
  size_t unacknowledged_bytes() const { return link_.unacknowledged_bytes(); }
  uint64_t oversized() const { return link_.oversized(); }
  Instant last_heard() const { return link_.last_heard(); }
  // Until when the node can serve its copies of names: at once if it said goodbye, else a lease
  // after the shard heard from it last.
  Instant ServesUntil() const { return ended_ ? Instant() : link_.SilentAt(); }
  SessionId id() const { return id_; }
  const v1::NodeInfo& node() const { return node_; }
  NodeKey key() const { return NodeKey{node_.key().node(), node_.key().incarnation()}; }

 private:
  const SessionId id_;
  const uint64_t shard_incarnation_;
  const v1::NodeInfo node_;
  const absl::Duration configured_grace_;
  absl::Duration round_trip_;  // of the latest stream
  SessionLink<v1::ShardMessage, v1::NodeMessage> link_;
  uint64_t heard_ns_ = 0;   // the node's clock in its latest batch
  Instant expected_until_;  // without a stream
  bool had_stream_ = false;
  bool welcome_due_ = false;
  bool resumed_ = false;
  bool ended_ = false;
};

}  // namespace phalanx::directory

#endif  // PHALANX_DIRECTORY_SESSION_SESSION_H_
