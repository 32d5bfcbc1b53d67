// The words of the data plane: what a pull is told, how it ends, what a sender is asked.
//
// Values; copy or move them freely, any thread.
#ifndef PHALANX_NET_PULL_H_
#define PHALANX_NET_PULL_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "phalanx/object_id.h"
#include "src/common/ids.h"
#include "src/net/address.h"

namespace phalanx::net {

class TransferBuffer;

// What is known of a pull while it runs, beside its watermarks: written by its loop, read by any.
struct PullProgress {
  // Of the time so far, what the sender spent without data to send, as this side sees it.
  std::atomic<uint64_t> starved_ns{0};
};

// What a receiver asks of a sender.
struct PullSpec {
  NodeKey sender;  // the life we mean to reach: another life at the address refuses
  Address address;
  ObjectId object;
  Generation generation;
  // What to fetch into; for each slice in `slices`, from its watermark at the start of the pull to
  // its end.
  std::shared_ptr<TransferBuffer> into;
  uint64_t slices = 1;  // bit i: slice i
  // May be null.
  std::shared_ptr<PullProgress> progress = nullptr;
};

// How a pull ended; `status` is OK when every slice asked for is full. Else the code tells what to
// do:
//   Unavailable        connection refused or broken, or      ask the directory for another sender
//                      another life at the address
//   DeadlineExceeded   heard nothing for the stall timeout   the same
//   NotFound           the sender does not have it           the same
//   ResourceExhausted  the sender serves too many, or this   the same
//                      node has too many connections
//   Aborted            the generation died at the sender     ask the directory
//   DataLoss           checksum mismatch, or frames that     the same; the watermark did not pass
//                      make no sense                         the bad segment
//   PermissionDenied   the handshake failed: secret,         nothing helps
//                      cluster or version differ
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

// What a sender is asked for, already checked for form (slices and offsets within limits), not yet
// against the object.
struct ServeRequest {
  NodeKey receiver;
  ObjectId object;
  Generation generation;
  uint64_t slices = 1;
  std::string peer;
  // How long the receiver may be left without an answer: a part of its stall timeout.
  absl::Duration patience = absl::InfiniteDuration();
};

// Keeps the object's pin while it is being sent: destroyed on the control loop when the push has
// ended.
struct ServeGrant {
  std::shared_ptr<TransferBuffer> from;
  std::shared_ptr<void> pin;
};

}  // namespace phalanx::net

#endif  // PHALANX_NET_PULL_H_
