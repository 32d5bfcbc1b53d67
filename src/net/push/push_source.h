// PushSource: the bytes that one push still has to send, cut into segments.
//
// For each requested slice the source serves the bytes from the requested offset to the end of the
// slice, but only those below the watermark of the granted buffer. The slices take turns, one
// segment each. If no slice has bytes, the push is starved: the source subscribes to the buffer and
// counts the time until a slice has bytes again.
//
//   empty ──Begin──► fed ──AwaitBytes──► starved         Release: from any state back to empty
//                     ▲                     │
//                     └──SelectSlice finds bytes, or StopWaiting
//
// Invariants
//  1. Each requested byte is cut once, in ascending order within its slice.
//  2. The bytes of a segment are final, and stay valid until Release.
//  3. The source has at most one subscription, and none after Release or StopWaiting.
//
// Part of a PullSender; one loop.
#ifndef PHALANX_NET_PUSH_PUSH_SOURCE_H_
#define PHALANX_NET_PUSH_PUSH_SOURCE_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "src/common/time/executor.h"
#include "src/net/frame/frame.h"
#include "src/net/pull/pull.h"
#include "src/net/pull/transfer_buffer.h"

namespace phalanx::net {

class PushSource {
 public:
  PushSource() = default;
  // Ends the subscription, which refers to this.
  ~PushSource() { Unsubscribe(); }
  PushSource(const PushSource&) = delete;
  PushSource& operator=(const PushSource&) = delete;

  // A SEGMENT frame. The caller sets `header.pull`.
  struct Segment {
    FrameHeader header;
    absl::Span<const char> payload;
  };

  // Begins a push and takes the grant, in case of an error too. Returns FailedPrecondition if the
  // object does not have a requested slice or offset; the push has no bytes then. REQUIRES: the
  // source is empty; the grant has a buffer.
  absl::Status Begin(ServeGrant grant, absl::Span<const OpenPayload::Want> wants, bool checksums);

  // Ends the push and returns its grant. Returns an empty grant if the source is empty.
  ServeGrant Release();

  // The following methods REQUIRE: the source is not empty.
  const TransferBuffer& buffer() const { return *grant_.from; }
  bool all_sent() const;

  // Selects the next slice, in turn, that has bytes, and ends the time of starvation. Returns the
  // number of its bytes, or 0 if no slice has any.
  uint64_t SelectSlice(Instant now);
  // Cuts a segment from the selected slice. REQUIRES: 0 < bytes <= the result of the last
  // SelectSlice.
  Segment Cut(size_t bytes);

  // The push is starved from now on. Calls `wake` once on `executor` when a slice has bytes or the
  // buffer is closed. If a call is already due, only the first one happens. `wake` is copied.
  template <typename Wake>
  void AwaitBytes(Instant now, Executor& executor, Wake wake) {
    if (!starved()) starved_since_ = now;
    if (subscription_ != 0) return;
    Subscribe(executor, [this, wake] {
      subscription_ = 0;
      wake();
    });
  }
  // Drops the subscription and ends the time of starvation. Also allowed if the source is empty.
  void StopWaiting(Instant now);

  bool starved() const { return starved_since_.has_value(); }
  // How long this push has been starved up to `now`.
  absl::Duration StarvedTime(Instant now) const;

 private:
  // One requested slice: [cursor, end) remains to be cut.
  struct Lane {
    int slice;
    uint64_t cursor;
    uint64_t end;
  };

  void Subscribe(Executor& executor, Task wake);
  void Unsubscribe();
  void EndStarvation(Instant now);

  ServeGrant grant_;
  bool checksums_ = false;
  std::vector<Lane> lanes_;
  // The lane that was selected last.
  size_t selected_ = 0;

  TransferBuffer::SubscriptionId subscription_ = 0;
  // The argument of Subscribe, kept for its memory.
  std::vector<uint64_t> seen_;

  // Set while the push is starved.
  std::optional<Instant> starved_since_;
  // Without the time since `starved_since_`.
  absl::Duration starved_total_;
  // Since the last segment.
  absl::Duration starved_before_;
};

}  // namespace phalanx::net

#endif  // PHALANX_NET_PUSH_PUSH_SOURCE_H_
