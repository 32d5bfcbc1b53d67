// The data plane: moves the bytes of generations between nodes over pooled connections.
//
//   control loop                      I/O loops (0..n-1)
//   Store ──StartPull/CancelPull──►  PullReceiver ── ByteStream ──► peer
//         ◄──PullEvents───────────         │ writes + publishes
//                                    TransferBuffer
//                                          │ reads as it grows
//   Store ◄──ServeHandler───────────  PullSender ── ByteStream ◄── peer
//
// One connection carries one pull at a time and goes back to the pool afterwards, so that a small object never waits
// behind a large one's bytes. A pull belongs to one I/O loop from its start to its end. The wire format is told in
// docs/data-plane.md; its decoder is net/frame.h.
//
// No circular wait: a pull holds its memory before it starts (the store's rule), needs no memory of the data plane beyond
// one fixed scratch block, and a sender that waits for its own upstream holds a connection and nothing else; the number of
// pulls served and connections open is limited by refusing (ResourceExhausted, "try another sender"), never by queueing.
//
// Thread rule: constructed, used and destroyed on the control loop; its callbacks run there. Owned by the node.
#ifndef PHALANX_NET_DATA_PLANE_H_
#define PHALANX_NET_DATA_PLANE_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "phalanx/object_id.h"
#include "src/common/executor.h"
#include "src/common/ids.h"
#include "src/net/byte_stream.h"
#include "src/net/handshake.h"
#include "src/net/transfer_buffer.h"

namespace phalanx::net {

// What a receiver asks of a sender.
struct PullSpec {
  NodeKey sender;  // the life we mean to reach: another life at the address refuses
  Address address;
  ObjectId object;
  Generation generation;
  // What to fetch into; for each slice in `slices`, from its watermark at the start of the pull to its end.
  std::shared_ptr<TransferBuffer> into;
  uint64_t slices = 1;  // bit i: slice i
};

// How a pull ended; `status` is OK when every slice asked for is full. Else the code tells what to do:
//   Unavailable        connection refused or broken         ask the directory for another sender
//   DeadlineExceeded   heard nothing for the stall timeout   the same
//   NotFound           the sender does not have it           the same
//   ResourceExhausted  the sender serves too many            the same
//   Aborted            the generation died at the sender     ask the directory
//   DataLoss           checksum mismatch                     the same; the watermark did not pass the bad segment
//   PermissionDenied   handshake failed
//   Cancelled          CancelPull
struct PullOutcome {
  absl::Status status;
  uint64_t bytes_received = 0;
  // From the request to the first frame of the answer; zero when there was none.
  absl::Duration first_byte;
  // Over segments whose sender was not starved; zero when too little was seen to tell.
  double bytes_per_second = 0;
  // The sender's own share of the time without data to send.
  absl::Duration starved;
};

// What a sender is asked for, already checked for form (slices and offsets within limits), not yet against the object.
struct ServeRequest {
  NodeKey receiver;
  ObjectId object;
  Generation generation;
  uint64_t slices = 1;
  std::string peer;
};
// Keeps the object's pin while it is being sent: destroyed on the control loop when the push has ended.
struct ServeGrant {
  std::shared_ptr<TransferBuffer> from;
  std::shared_ptr<void> pin;
};

struct DataPlaneOptions {
  NodeKey self;
  HandshakeConfig handshake;
  size_t segment_bytes = 64 * 1024;
  bool checksums = false;
  // A receiver that hears nothing (not even "starved") for so long gives up; senders say "starved" every quarter of it.
  absl::Duration stall_timeout = absl::Milliseconds(500);
  absl::Duration connect_timeout = absl::Seconds(2);
  // A connection that has not said who it is, or idles without a request, is closed after:
  absl::Duration handshake_timeout = absl::Seconds(5);
  absl::Duration idle_timeout = absl::Seconds(60);
  // Bytes a second over all pushes; 0 is no limit.
  double max_egress = 0;
  int max_pushes = 1024;
  int max_connections = 4096;
  int max_idle_connections_per_peer = 4;
};

struct DataPlaneStats {
  uint64_t bytes_sent = 0;
  uint64_t bytes_received = 0;
  // Bytes that arrived after another pull had brought them, or were thrown away with a failed one.
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
  // Answers a request on the control loop, at once.
  using ServeHandler = absl::AnyInvocable<absl::StatusOr<ServeGrant>(const ServeRequest&)>;

  // `io` has at least one executor; it may be the control loop itself. All of them, and `network`, outlive this.
  static std::unique_ptr<DataPlane> Create(Network& network, Executor& control,
                                           std::vector<Executor*> io, DataPlaneOptions options,
                                           ServeHandler serve);
  // Ends every pull and push without calling back. REQUIRES: the I/O executors still run, or have been shut down.
  virtual ~DataPlane() = default;

  // Starts to accept peers; returns the real address. Errors as Network::Listen.
  virtual absl::StatusOr<Address> Listen(const Address& on) = 0;

  // `done` runs once, never inside this call, unless the data plane is destroyed before. On a lossless path the bytes of
  // `into` arrive in place; its watermark moves while they do.
  virtual PullHandle StartPull(PullSpec spec, PullDone done) = 0;
  // The pull's `done` is called with Cancelled unless it ended already; nothing is written to `into` after `done`.
  virtual void CancelPull(PullHandle handle) = 0;
  // Ends the pushes of a generation with Aborted and `why`: the generation died here.
  virtual void AbortPushes(const ObjectId& object, const Generation& generation, absl::Status why) = 0;

  virtual DataPlaneStats stats() const = 0;
};

}  // namespace phalanx::net

#endif  // PHALANX_NET_DATA_PLANE_H_
