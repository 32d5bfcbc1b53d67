// The values of the data plane: the request for a pull, its outcome, and the request that a sender
// serves.
//
// Copy or move them freely, any thread.
#ifndef PHALANX_NET_PULL_PULL_H_
#define PHALANX_NET_PULL_PULL_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "phalanx/object_id.h"
#include "src/common/ids/ids.h"
#include "src/common/time/instant.h"
#include "src/net/stream/address.h"

namespace phalanx::net {

class TransferBuffer;

// The progress of a running pull, besides its watermarks. Written by the loop of the pull, read by
// any thread.
struct PullProgress {
  static constexpr int64_t kNotConnecting = INT64_MAX;

  // How long the sender had no bytes to send so far, as measured by the receiver.
  std::atomic<uint64_t> starved_ns{0};
  // When the last step of connecting began, the dial or the handshake, on the clock of the node's
  // executors. kNotConnecting before the dial, and once the connection is there.
  std::atomic<int64_t> connecting_since{kNotConnecting};

  // Returns when the current step of connecting has taken `patience`; infinite if there is none.
  Instant ConnectionDue(absl::Duration patience) const {
    const int64_t since = connecting_since.load(std::memory_order_relaxed);
    return since == kNotConnecting ? Instant::Infinite() : Instant::FromNanos(since) + patience;
  }
};

// The request of a receiver.
struct PullSpec {
  NodeKey sender;  // another incarnation at the address rejects the request
  Address address;
  ObjectId object;
  Generation generation;
  // The destination. The pull fetches each slice in `slices` from its watermark at the start of the
  // pull to its end. If it is null the pull only connects, with a new connection, which is kept for
  // later pulls; `slices` is 0 then.
  std::shared_ptr<TransferBuffer> into;
  uint64_t slices = 1;  // bit i: slice i
  // Can be null.
  std::shared_ptr<PullProgress> progress = nullptr;
};

// The outcome of a pull. `status` is OK if every requested slice is full. Otherwise the code
// determines the reaction:
//   Unavailable        connection refused or broken, or      ask the directory for another sender
//                      another incarnation at the address
//   DeadlineExceeded   no bytes for the stall timeout        the same
//   NotFound           the sender does not have the object   the same
//   ResourceExhausted  the sender serves too many pulls, or  the same
//                      this node has too many connections
//   Aborted            the generation died at the sender     ask the directory
//   DataLoss           checksum mismatch, or malformed       the same; the watermark did not pass
//                      frames                                the bad segment
//   PermissionDenied   the handshake failed: secret,         none; a retry fails, too
//                      cluster or version differ
//   Cancelled          CancelPull
struct PullOutcome {
  absl::Status status;
  uint64_t bytes_received = 0;
  // From the request to the first frame of the answer; zero if there was none.
  absl::Duration first_byte;
  // Measured over segments whose sender was not starved; zero if there were too few.
  double bytes_per_second = 0;
  // How long the sender had no bytes to send, as reported by the sender.
  absl::Duration starved;
};

// The request that a sender receives. Its form has been checked (slices and offsets within limits),
// but not yet against the object.
struct ServeRequest {
  NodeKey receiver;
  ObjectId object;
  Generation generation;
  uint64_t slices = 1;
  std::string peer;
  // How long the receiver can wait for an answer: a part of its stall timeout.
  absl::Duration patience = absl::InfiniteDuration();
  // The least offset that is requested of any slice.
  uint64_t from = 0;
};

// Holds the pin of the object while it is being sent. Destroyed on the control loop when the push
// has ended.
struct ServeGrant {
  std::shared_ptr<TransferBuffer> from;
  std::shared_ptr<void> pin;
};

}  // namespace phalanx::net

#endif  // PHALANX_NET_PULL_PULL_H_
