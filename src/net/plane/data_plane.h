// The data plane: moves the bytes of generations between nodes over pooled connections.
//
//   control loop                      I/O loops (0..n-1)
//   Store ──StartPull/CancelPull──►  PullReceiver ── ByteStream ──► peer
//         ◄──PullDone─────────────         │ writes + publishes
//                                    TransferBuffer
//                                          │ reads as it grows
//   Store ◄──ServeHandler───────────  PullSender ── ByteStream ◄── peer
//
// One connection carries one pull at a time and then returns to the pool, so that a small object
// never waits behind the bytes of a large one. A pull belongs to one I/O loop from its start to its
// end: the loop with the fewest pulls, and among equals the loop of its peer, which has the idle
// connections to that peer. docs/data-plane.md describes the wire format; net/frame.h decodes it.
//
// No circular wait: a pull has its memory before it starts (the store's rule) and needs no memory
// of the data plane except one fixed scratch block. A sender that waits for its own sender holds
// only a connection. The data plane limits pulls and connections by refusing (ResourceExhausted,
// "try another sender"), never by queueing. The one exception: many pulls of one peer that begin at
// once wait until their connections are dialed, but no longer than the connect timeout.
//
// Thread rule: constructed, used and destroyed on the control loop; its callbacks run there. Owned
// by the node.
#ifndef PHALANX_NET_PLANE_DATA_PLANE_H_
#define PHALANX_NET_PLANE_DATA_PLANE_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "phalanx/object_id.h"
#include "src/common/ids/ids.h"
#include "src/common/time/executor.h"
#include "src/net/link/incoming_link.h"
#include "src/net/pull/pull.h"
#include "src/net/pull/transfer_buffer.h"
#include "src/net/stream/byte_stream.h"
#include "src/net/stream/handshake.h"

namespace phalanx::net {

struct DataPlaneOptions {
  // The identity of this node, also in the handshake; `handshake.self` is ignored.
  NodeKey self;
  HandshakeConfig handshake;
  // 1 byte to 1 MiB.
  size_t segment_bytes = size_t{64} * 1024;
  bool checksums = false;
  // A receiver that receives no byte (not even STARVED) for this time gives up. Senders without
  // bytes send STARVED in every quarter of it. 4 ms to a minute.
  absl::Duration stall_timeout = absl::Milliseconds(500);
  // Limits connecting and the handshake together.
  absl::Duration connect_timeout = absl::Seconds(2);
  // A node that has waited so long for one of the two looks for a way around the peer, and waits
  // on. Longer than a round trip to any peer takes; a handshake is one.
  absl::Duration connect_patience() const { return connect_timeout / 8; }
  // An accepted connection is closed after these times if it has not finished the handshake, or has
  // no request.
  absl::Duration handshake_timeout = absl::Seconds(5);
  absl::Duration idle_timeout = absl::Seconds(60);
  // Bytes per second over all pushes; 0 means no limit.
  double max_egress = 0;
  int max_pushes = 1024;
  // Dialed connections and accepted, proven connections together; at least 1.
  int max_connections = 4096;
  // Accepted connections that are not proven yet; at least 1. Beyond this limit the oldest of them
  // is closed.
  int max_unproven_connections = 512;
  // Divided among the I/O loops; each has at least one.
  int max_idle_connections_per_peer = 64;
  // Called for every accepted connection that ended before its proof, on its I/O loop. Can be
  // empty.
  std::function<void(absl::string_view peer, const absl::Status& reason)> on_rejected_peer;
};

struct DataPlaneStats {
  // Includes frame headers and control frames.
  uint64_t bytes_sent = 0;
  // Published bytes of objects.
  uint64_t bytes_received = 0;
  // Discarded bytes of cancelled pulls, and segments that failed their check.
  uint64_t bytes_wasted = 0;
  int pulls_active = 0;
  int pushes_active = 0;
  int connections = 0;
  uint64_t handshakes_refused = 0;
  uint64_t frames_refused = 0;
};

class DataPlane {
 public:
  using PullHandle = uint64_t;
  using PullDone = absl::AnyInvocable<void(const PullOutcome&)>;
  // Answers a request on the control loop by calling `reply` there once: at once, or later if the
  // object is about to be created here, but within the patience of the request, since the receiver
  // gets no sign of life meanwhile. Destroying a reply without a call refuses the request with
  // Unavailable. Requests that wait for their reply count as pushes. A grant has a buffer. The
  // receiver gets NotFound, Aborted, Unavailable and ResourceExhausted unchanged, and other errors
  // as Unavailable.
  using ServeReply = absl::AnyInvocable<void(absl::StatusOr<ServeGrant>)>;
  using ServeHandler = absl::AnyInvocable<void(const ServeRequest&, ServeReply reply)>;

  // `io` has at least one executor; it can be the control loop itself. All executors and `network`
  // outlive the data plane, and the threads of the loops end before any of them is destroyed.
  // Returns InvalidArgument that names the option and its bounds if an option is out of bounds.
  static absl::StatusOr<std::unique_ptr<DataPlane>> Create(Network& network, Executor& control,
                                                           const std::vector<Executor*>& io,
                                                           DataPlaneOptions options,
                                                           ServeHandler serve);
  // Ends every pull and push without calling back. The I/O loops release the buffers in a later
  // turn, and the control loop releases the pins after that. REQUIRES: the I/O executors still run,
  // or have been shut down.
  virtual ~DataPlane() = default;

  // Starts to accept peers. Returns the actual address. Errors as Network::Listen.
  virtual absl::StatusOr<Address> Listen(const Address& on) = 0;

  // `done` runs once, never inside this call, unless the data plane is destroyed first. Bytes
  // arrive in place in `into`, and its watermarks rise meanwhile. When `done` runs, the data plane
  // holds no reference to `into`.
  virtual PullHandle StartPull(PullSpec spec, PullDone done) = 0;
  // Ends the pull with Cancelled if it has not ended; `done` is still called. Nothing is written to
  // `into` after `done`.
  virtual void CancelPull(PullHandle handle) = 0;
  // Returns the I/O loop of the pull, for code that processes its bytes as they arrive: on that
  // loop it need not wake another thread. Returns null if the pull has ended.
  virtual Executor* LoopOf(PullHandle handle) const = 0;
  // Ends the pushes of a generation that died on this node with Aborted and `reason`.
  virtual void AbortPushes(const ObjectId& object, const Generation& generation,
                           absl::Status reason) = 0;

  // Passes connections that peers have dialed for a link to `handler`, on the control loop. Without
  // one they are closed.
  using LinkHandler = absl::AnyInvocable<void(IncomingLink)>;
  virtual void SetLinkHandler(LinkHandler handler) = 0;

  virtual DataPlaneStats stats() const = 0;
};

}  // namespace phalanx::net

#endif  // PHALANX_NET_PLANE_DATA_PLANE_H_
