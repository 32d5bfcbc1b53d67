// The seam for control streams: whole frames, in order, in both directions, until the stream
// breaks.
//
// Implementations: byte_message_stream.h, over TCP and, in simulation, over a network where frames
// are delayed and streams break at any byte or fall silent; local_message_stream.h, within a
// process (local/); and directory/grpc. All pass message_stream_conformance.h.
//
// Thread rule: a stream belongs to the executor that it was created for. Every call and every
// callback runs there; a callback never runs inside a call. A callback can close or destroy its
// stream.
#ifndef PHALANX_DIRECTORY_SESSION_MESSAGE_STREAM_H_
#define PHALANX_DIRECTORY_SESSION_MESSAGE_STREAM_H_

#include <memory>
#include <string>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "phalanx/v1/directory.pb.h"
#include "src/common/time/executor.h"

namespace phalanx::directory {

template <typename Out, typename In>
class MessageStream {
 public:
  struct Handlers {
    absl::AnyInvocable<void(In)> on_message;
    // The owner can send one more frame: called once after writable() was false. Not called if the
    // owner did not check writable(), so a stream that is rarely used does not wake its loop for
    // nothing.
    absl::AnyInvocable<void()> on_writable;
    // Called once, last: the stream broke (Unavailable, or the peer's own status) or the peer
    // closed it (OK). Not called after Close.
    absl::AnyInvocable<void(absl::Status)> on_closed;
  };

  // Destroying a stream closes it.
  virtual ~MessageStream() = default;

  // Installs the handlers; frames that arrived before wait until then. REQUIRES: called once,
  // before Send.
  virtual void Start(Handlers handlers) = 0;

  // One frame at a time: the sender batches, and a slow peer makes batches longer, not queues. True
  // after Start, even before the connection is made, and again when the stream has taken the last
  // frame. REQUIRES for Send: writable(), a frame of at most kMaxFrameBytes; each of the first
  // kGreetingFrames at most kMaxGreetingBytes.
  virtual bool writable() const = 0;
  virtual void Send(const Out& frame) = 0;

  // Sends the queued frame first, as far as the transport can. If the shard closes, the peer's
  // on_closed gets `why`. Idempotent; no callback afterwards.
  virtual void Close(absl::Status why) = 0;

  // The round trip that the transport measured; zero if unknown.
  virtual absl::Duration RoundTrip() const { return absl::ZeroDuration(); }

  virtual std::string peer() const = 0;
};

using NodeStream = MessageStream<v1::NodeFrame, v1::ShardFrame>;   // the node's end
using ShardStream = MessageStream<v1::ShardFrame, v1::NodeFrame>;  // the shard's end

// Opens streams to one shard; owned by the node, lives on its control loop.
class ShardConnector {
 public:
  virtual ~ShardConnector() = default;
  // Returns the stream at once; the stream's handlers report whether it ever connected.
  virtual std::unique_ptr<NodeStream> Connect(Executor& executor) = 0;
  // For messages: "10.77.0.1:7400".
  virtual std::string target() const = 0;
};

}  // namespace phalanx::directory

#endif  // PHALANX_DIRECTORY_SESSION_MESSAGE_STREAM_H_
