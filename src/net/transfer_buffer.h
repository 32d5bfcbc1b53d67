// The bytes of one generation on this node while they arrive, and how far they have come: what a
// pull writes into, pushes read from, and clients look through.
//
//    PullReceiver ──Publish──►┌────────────────┐◄──Subscribe── PullSender (0..n, any loop)
//    client's Publish ───────►│ TransferBuffer │◄──Subscribe── Store (readers, streaming reads)
//                             └───────┬────────┘
//                                     ▼ shared memory (kept alive by `memory`)
//
// Invariants
//  1. Bytes [0, watermark(s)) of slice s are final: written before the watermark moved (release),
//     read after it was seen (acquire).
//  2. At most one writer per slice at a time; the store sees to that.
//  3. What is published after Close has returned is ignored; a Publish that runs at the same time
//     may still count. A closed buffer with every slice full is a complete copy.
//
// Thread rule: shared between loops by std::shared_ptr; every method is thread-safe. `watermark`
// costs one atomic load; `Publish` one store and, only while somebody is subscribed and waiting,
// one lock.
#ifndef PHALANX_NET_TRANSFER_BUFFER_H_
#define PHALANX_NET_TRANSFER_BUFFER_H_

#include <atomic>
#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "src/common/executor.h"
#include "src/common/ids.h"
#include "src/common/mutex.h"
#include "src/net/slice_layout.h"

namespace phalanx::net {

class TransferBuffer {
 public:
  // `memory` owns the mapping behind `bytes` and lives as long as this buffer. REQUIRES:
  // bytes.size() == layout.object_bytes, 1 <= layout.slices <= kMaxSlices. Every slice starts at
  // watermark 0.
  TransferBuffer(SliceLayout layout, absl::Span<char> bytes, std::shared_ptr<void> memory);
  // Subscriptions that have not fired are dropped: their `wake` is destroyed here, unrun.
  ~TransferBuffer();
  TransferBuffer(const TransferBuffer&) = delete;
  TransferBuffer& operator=(const TransferBuffer&) = delete;

  const SliceLayout& layout() const { return layout_; }
  // The whole of a slice's place. Only the slice's writer writes, and only at and above the
  // watermark.
  absl::Span<char> slice(int slice) const;

  uint64_t watermark(int slice) const;
  // Bytes over all slices, for progress displays.
  uint64_t bytes_present() const;
  bool complete() const;

  // Raises a slice's watermark and wakes those waiting for it; ignored once closed, which the
  // watermark tells.
  // REQUIRES: watermark(slice) <= to <= layout().Size(slice).
  void Publish(int slice, uint64_t to);

  // No more bytes will come; `why` says the reason (OK when complete). Wakes everybody. The first
  // call counts.
  void Close(const absl::Status& why);
  bool closed() const;
  // OK while open.
  absl::Status close_status() const;

  // Calls `wake` once on `executor` when a slice in `slices` (bit i = slice i) passes the watermark
  // that `seen` holds for it, or the buffer is closed; soon if that is so already. 0-based `seen`
  // has one entry per slice. Returns an id for Unsubscribe, never 0. `wake` must not own the
  // buffer.
  using SubscriptionId = uint64_t;
  SubscriptionId Subscribe(uint64_t slices, absl::Span<const uint64_t> seen, Executor& executor,
                           Task wake);
  // After return `wake` has run, or never will, and has been destroyed unless it is what is running
  // now. Unknown ids are ignored. REQUIRES: called on the subscription's executor.
  void Unsubscribe(SubscriptionId id);

 private:
  class Waiters;

  // Constant after construction.
  const SliceLayout layout_;
  const absl::Span<char> bytes_;
  const std::shared_ptr<void> memory_;
  // Own synchronization; shared with the wake-ups under way, which may outlive this buffer.
  const std::shared_ptr<Waiters> waiters_;

  // Lock-free. Sequentially consistent, so that a publisher that sees nobody waiting and a
  // subscriber that sees no new bytes cannot both be right.
  const std::unique_ptr<std::atomic<uint64_t>[]> watermarks_;
  std::atomic<bool> closed_{false};

  mutable Mutex mu_;
  absl::Status close_status_ ABSL_GUARDED_BY(mu_);
};

}  // namespace phalanx::net

#endif  // PHALANX_NET_TRANSFER_BUFFER_H_
