// TransferBuffer: the bytes of one generation on this node while they arrive, and their watermarks.
// A pull writes into it, pushes read from it, and clients map it.
//
//    PullReceiver ──Publish──►┌────────────────┐◄──Subscribe── PullSender (0..n, any loop)
//    client's Publish ───────►│ TransferBuffer │◄──Subscribe── Store (readers, streaming reads)
//                             └───────┬────────┘
//                                     ▼ shared memory (kept alive by `memory`)
//
// Invariants
//  1. Bytes [0, watermark(s)) of slice s are final: written before the watermark moved (release),
//     read after it was seen (acquire).
//  2. At most one writer per slice at a time; the store ensures this.
//  3. A Publish after Close has returned is ignored; a concurrent Publish can still take effect. A
//     closed buffer with every slice full is a complete copy.
//
// Thread rule: shared between loops by std::shared_ptr; every method is thread-safe. `watermark`
// costs one atomic load; `Publish` costs one store and, only if a subscription is waiting, one
// lock.
#ifndef PHALANX_NET_PULL_TRANSFER_BUFFER_H_
#define PHALANX_NET_PULL_TRANSFER_BUFFER_H_

#include <atomic>
#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "src/common/ids/ids.h"
#include "src/common/slice_layout.h"
#include "src/common/threads/mutex.h"
#include "src/common/time/executor.h"

namespace phalanx::net {

class TransferBuffer {
 public:
  // `memory` owns the mapping behind `bytes` and lives as long as this buffer. REQUIRES:
  // bytes.size() == layout.object_bytes, 1 <= layout.slices <= kMaxSlices. Every slice starts at
  // watermark 0.
  TransferBuffer(SliceLayout layout, absl::Span<char> bytes, std::shared_ptr<void> memory);
  // Drops the subscriptions that have not fired: destroys their `wake` without running it.
  ~TransferBuffer();
  TransferBuffer(const TransferBuffer&) = delete;
  TransferBuffer& operator=(const TransferBuffer&) = delete;

  const SliceLayout& layout() const { return layout_; }
  // Returns the memory of a slice. Only the writer of the slice writes, and only at and above the
  // watermark.
  absl::Span<char> slice(int slice) const;

  uint64_t watermark(int slice) const;
  // Returns the number of bytes present in all slices, for progress displays.
  uint64_t bytes_present() const;
  bool complete() const;

  // Raises the watermark of a slice and wakes the subscriptions that wait for it. Ignored after
  // Close; the watermark then stays as it is. REQUIRES: watermark(slice) <= to <=
  // layout().Size(slice).
  void Publish(int slice, uint64_t to);

  // Declares that no more bytes follow; `reason` gives the reason (OK if complete). Wakes every
  // subscription. Only the first call has an effect.
  void Close(const absl::Status& reason);
  bool closed() const;
  // Returns OK while the buffer is open.
  absl::Status close_status() const;

  // Calls `wake` once on `executor` when a slice in `slices` (bit i = slice i) passes the watermark
  // that `seen` has for it, or when the buffer is closed; soon, if this already holds. `seen` has
  // one entry per slice. Returns an id for Unsubscribe, never 0. `wake` must not own the buffer.
  using SubscriptionId = uint64_t;
  SubscriptionId Subscribe(uint64_t slices, absl::Span<const uint64_t> seen, Executor& executor,
                           Task wake);
  // After Unsubscribe returns, `wake` either has run or never runs, and is destroyed unless it is
  // the running task. Ignores unknown ids. REQUIRES: called on the executor of the subscription.
  void Unsubscribe(SubscriptionId id);

 private:
  class Waiters;

  // Constant after construction.
  const SliceLayout layout_;
  const absl::Span<char> bytes_;
  const std::shared_ptr<void> memory_;
  // Synchronizes itself. Shared with posted wake-ups, which can outlive this buffer.
  const std::shared_ptr<Waiters> waiters_;

  // Lock-free. Sequentially consistent, so that it cannot happen that a publisher sees no waiting
  // subscription and the subscriber sees no new bytes.
  const std::unique_ptr<std::atomic<uint64_t>[]> watermarks_;
  std::atomic<bool> closed_{false};

  mutable Mutex mu_;
  absl::Status close_status_ ABSL_GUARDED_BY(mu_);
};

}  // namespace phalanx::net

#endif  // PHALANX_NET_PULL_TRANSFER_BUFFER_H_
