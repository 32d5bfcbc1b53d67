// The data plane: moves the bytes of generations between nodes over pooled connections.
//
//   control loop                      I/O loops (0..n-1)
//   Store ──StartPull/CancelPull──►  PullReceiver ── ByteStream ──► peer
//         ◄──PullDone─────────────         │ writes + publishes
//                                    TransferBuffer
//                                          │ reads as it grows
//   Store ◄──ServeHandler───────────  PullSender ── ByteStream ◄── peer
//
// One connection carries one pull at a time and goes back to the pool afterwards, so that a small
// object never waits behind a large one's bytes. A pull belongs to one I/O loop from its start to
// its end: to one that has least to do, and of these to its peer's, where connections to it idle.
// The wire format is told in docs/data-plane.md; its decoder is net/frame.h.
//
// No circular wait: a pull holds its memory before it starts (the store's rule), needs no memory of
// the data plane beyond one fixed scratch block, and a sender that waits for its own upstream holds
// a connection and nothing else; the number of pulls served and connections open is limited by
// refusing (ResourceExhausted, "try another sender"), never by queueing. Only where many pulls of
// one peer begin at once they wait for their connections to be made, which takes no longer than the
// connect timeout whatever the pulls do.
//
// Thread rule: constructed, used and destroyed on the control loop; its callbacks run there. Owned
// by the node.
#ifndef PHALANX_NET_DATA_PLANE_H_
#define PHALANX_NET_DATA_PLANE_H_

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
#include "src/common/executor.h"
#include "src/common/ids.h"
#include "src/net/byte_stream.h"
#include "src/net/handshake.h"
#include "src/net/pull.h"
#include "src/net/transfer_buffer.h"

namespace phalanx::net {

struct DataPlaneOptions {
  // Also who the handshake says we are, whatever `handshake.self` holds.
  NodeKey self;
  HandshakeConfig handshake;
  // 1 byte to 1 MiB.
  size_t segment_bytes = size_t{64} * 1024;
  bool checksums = false;
  // A receiver that hears nothing (not even "starved") for so long gives up; senders say "starved"
  // every quarter of it. 4 ms to a minute.
  absl::Duration stall_timeout = absl::Milliseconds(500);
  // To connect and shake hands.
  absl::Duration connect_timeout = absl::Seconds(2);
  // A connection that has not said who it is, or idles without a request, is closed after:
  absl::Duration handshake_timeout = absl::Seconds(5);
  absl::Duration idle_timeout = absl::Seconds(60);
  // Bytes a second over all pushes; 0 is no limit.
  double max_egress = 0;
  int max_pushes = 1024;
  // Dialed, and accepted and proven, together; at least 1.
  int max_connections = 4096;
  // Accepted and not proven yet; at least 1. Beyond it the oldest of them is closed.
  int max_unproven_connections = 512;
  // On each I/O loop its share, at least one.
  int max_idle_connections_per_peer = 64;
  // Told of every accepted connection that ended before its proof, on its I/O loop; may be empty.
  std::function<void(absl::string_view peer, const absl::Status& why)> turned_away;
};

struct DataPlaneStats {
  // With frame headers and control frames.
  uint64_t bytes_sent = 0;
  // Of objects, published.
  uint64_t bytes_received = 0;
  // Bytes of cancelled pulls that were read and thrown away, and segments that failed their check.
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
  // Answers a request on the control loop by calling `reply` there once: at once, or later when the
  // object is about to begin here (the receiver hears nothing meanwhile, so within the request's
  // patience). A reply that is destroyed uncalled refuses with Unavailable. Requests that wait for
  // their reply count as pushes. A grant has a buffer. NotFound, Aborted, Unavailable and
  // ResourceExhausted reach the receiver as they are, others as Unavailable.
  using ServeReply = absl::AnyInvocable<void(absl::StatusOr<ServeGrant>)>;
  using ServeHandler = absl::AnyInvocable<void(const ServeRequest&, ServeReply reply)>;

  // `io` has at least one executor; it may be the control loop itself. All of them, and `network`,
  // outlive this, and the loops' threads end before any of them is destroyed. InvalidArgument, with
  // the name of the option and its bounds, when one is out of them.
  static absl::StatusOr<std::unique_ptr<DataPlane>> Create(Network& network, Executor& control,
                                                           const std::vector<Executor*>& io,
                                                           DataPlaneOptions options,
                                                           ServeHandler serve);
  // Ends every pull and push without calling back. The I/O loops let go of buffers in a later turn
  // of theirs, and pins after that on the control loop. REQUIRES: the I/O executors still run, or
  // have been shut down.
  virtual ~DataPlane() = default;

  // Starts to accept peers; returns the real address. Errors as Network::Listen.
  virtual absl::StatusOr<Address> Listen(const Address& on) = 0;

  // `done` runs once, never inside this call, unless the data plane is destroyed before. On a
  // lossless path the bytes of `into` arrive in place; its watermark moves while they do. By the
  // time of `done` the data plane holds no reference to `into`.
  virtual PullHandle StartPull(PullSpec spec, PullDone done) = 0;
  // The pull's `done` is called with Cancelled unless it ended already; nothing is written to
  // `into` after `done`.
  virtual void CancelPull(PullHandle handle) = 0;
  // The I/O loop on which the pull runs, for who works on its bytes as they come: there they need
  // wake nobody. Null once it has ended.
  virtual Executor* LoopOf(PullHandle handle) const = 0;
  // Ends the pushes of a generation with Aborted and `why`: the generation died here.
  virtual void AbortPushes(const ObjectId& object, const Generation& generation,
                           absl::Status why) = 0;

  virtual DataPlaneStats stats() const = 0;
};

}  // namespace phalanx::net

#endif  // PHALANX_NET_DATA_PLANE_H_
