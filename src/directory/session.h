// The session between a node and a shard: handshake, numbering, acknowledgement, batching,
// resumption. Two pure state machines, one for each end; the order of frames is told in
// protos/phalanx/v1/directory.proto.
//
// What a user of either end sees: messages handed to Send arrive at the other end once, in order,
// for as long as the session lives, whatever happens to the streams below it. When the session ends
// (fenced, given up because too much was unacknowledged, or the shard is another incarnation),
// everything that was not delivered is void, the user is told, and starts again from its own state.
//
// Invariants
//  1. A message is delivered at most once per session, and only when all earlier ones were.
//  2. `unacknowledged` counts exactly the messages of this session that the peer has not
//     acknowledged.
//  3. Frames are handed out one at a time (NextFrame), so a slow stream makes batches longer,
//     bounded by kMaxBatchBytes.
//
// Thread rule: no thread, lock or clock inside; `now` is passed in. Owned by the node's
// DirectoryClient or the shard's Shard.
#ifndef PHALANX_DIRECTORY_SESSION_H_
#define PHALANX_DIRECTORY_SESSION_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "phalanx/v1/directory.pb.h"
#include "src/common/ids.h"
#include "src/common/instant.h"
#include "src/directory/session_handshake.h"
#include "src/directory/session_link.h"

namespace phalanx::directory {

// The node's end.
class NodeSession {
 public:
  enum class Event {
    kRegister,  // a new session is up: Send the whole state now, RegisterBegin to RegisterEnd,
                // before anything else
    kResumed,   // the same session goes on
  };

  NodeSession(SessionConfig config, v1::NodeInfo self);

  // A stream has been opened: the next frame is a Hello with this nonce.
  void StreamOpened(absl::string_view nonce, Instant now);
  // The stream broke. What is unacknowledged is kept for resumption.
  void StreamClosed(Instant now);

  // Takes a frame from the shard. Delivered messages and events are read afterwards by TakeEvent,
  // then TakeMessages. Errors, after which the stream is to be closed: FailedPrecondition and
  // PermissionDenied (refused; the text names both sides' values), InvalidArgument (a frame out of
  // order or malformed), or whatever else the shard refused with.
  absl::Status OnFrame(v1::ShardFrame frame, Instant now);
  std::optional<Event> TakeEvent();
  std::vector<v1::ShardMessage> TakeMessages();

  // Queues a message for the session; void while there is none (before the first Welcome, after an
  // overflow).
  void Send(v1::NodeMessage message);

  // The next frame to put on a writable stream, if there is one: handshake, messages, or an
  // acknowledgement / heartbeat that is due.
  std::optional<v1::NodeFrame> NextFrame(Instant now);
  // The last frame before a node leaves for good: what is queued, and a goodbye. Nothing while not
  // established.
  std::optional<v1::NodeFrame> LastFrame(Instant now);
  // When NextFrame has a frame (the past, if it has one now), or silence of the shard ends the
  // stream. Infinite without a stream.
  Instant NextDeadline() const;
  // The last of them alone: all there is to wait for while the stream takes no frame.
  Instant SilenceDeadline() const;
  // True when the shard has been silent for a lease: close the stream and open another.
  bool ShardSilent(Instant now) const { return now >= SilenceDeadline(); }
  // True when too much is unacknowledged: close the stream and open another; it will ask for a new
  // session.
  bool overflowed() const { return link_.overflowed(); }

  // Streams carry messages both ways.
  bool established() const { return phase_ == Phase::kEstablished; }
  size_t unacknowledged() const { return link_.unacknowledged(); }
  // Messages that were too long to be sent.
  uint64_t oversized() const { return link_.oversized(); }
  // 0 before the first Welcome.
  uint64_t shard_incarnation() const { return shard_incarnation_; }
  // As the shard told in its Welcome; before, as configured.
  absl::Duration lease() const { return link_.lease(); }

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
  absl::Status OnWelcome(const v1::Welcome& welcome, Instant now);
  v1::NodeFrame HelloFrame();
  v1::NodeFrame ProofFrame() const;

  const SessionConfig config_;
  const v1::NodeInfo self_;

  // This stream.
  Phase phase_ = Phase::kNoStream;
  std::string nonce_;
  v1::Hello hello_;
  std::string shard_nonce_;

  // This session; id 0 is none.
  SessionId session_id_ = 0;
  uint64_t shard_incarnation_ = 0;
  SessionLink<v1::NodeMessage, v1::ShardMessage> link_;
  std::optional<Event> event_;
};

// The shard's end of one node's session; made when a node has proved itself and cannot resume
// another session.
class ShardSession {
 public:
  ShardSession(SessionId id, uint64_t shard_incarnation, const SessionConfig& config,
               v1::NodeInfo node, Instant now);

  // Whether the session can go on for the node that says this hello.
  bool CanResume(const v1::Hello& hello) const;
  // A stream of this node has proved itself: the next frame is the Welcome, `resumed` unless it is
  // the session's first stream. Replaces an earlier stream. REQUIRES: CanResume(hello), or no
  // stream before.
  void StreamOpened(const v1::Hello& hello, Instant now);
  void StreamClosed(Instant now);

  // Takes a frame that came after the proof. InvalidArgument for one out of order or malformed:
  // close the stream.
  absl::Status OnFrame(v1::NodeFrame frame, Instant now);
  std::vector<v1::NodeMessage> TakeMessages() { return link_.TakeDelivered(); }

  // Queues a message, whether there is a stream or not.
  void Send(v1::ShardMessage message) { link_.Send(std::move(message)); }

  // The next frame to put on a writable stream, if there is one.
  std::optional<v1::ShardFrame> NextFrame(Instant now);
  // When NextFrame has a frame (the past, if it has one now), or the session expires.
  Instant NextDeadline() const;

  // When the node will have been silent for the lease, or without a stream for the grace: the
  // session is to be fenced.
  Instant ExpiresAt() const;
  bool Expired(Instant now) const { return now >= ExpiresAt(); }
  // It was the lease.
  bool Silent(Instant now) const { return now >= link_.SilentAt(); }
  // The node said goodbye: the session ends.
  bool ended() const { return ended_; }
  // Too much is unacknowledged: the session ends, and the node will register anew.
  bool overflowed() const { return link_.overflowed(); }
  // We have not been listening (the process was stopped): the node's silence is not its own.
  void Forgive(Instant now);
  // We have not been listening for a part of the grace: it begins anew.
  void AwaitReconnect(Instant now);

  bool connected() const { return link_.attached(); }
  size_t unacknowledged() const { return link_.unacknowledged(); }
  size_t unacknowledged_bytes() const { return link_.unacknowledged_bytes(); }
  uint64_t oversized() const { return link_.oversized(); }
  Instant last_heard() const { return link_.last_heard(); }
  SessionId id() const { return id_; }
  const v1::NodeInfo& node() const { return node_; }
  NodeKey key() const { return NodeKey{node_.key().node(), node_.key().incarnation()}; }

 private:
  const SessionId id_;
  const uint64_t shard_incarnation_;
  const v1::NodeInfo node_;
  const absl::Duration grace_;
  SessionLink<v1::ShardMessage, v1::NodeMessage> link_;
  Instant expected_until_;  // while no stream is there
  bool had_stream_ = false;
  bool welcome_due_ = false;
  bool resumed_ = false;
  bool ended_ = false;
};

}  // namespace phalanx::directory

#endif  // PHALANX_DIRECTORY_SESSION_H_
