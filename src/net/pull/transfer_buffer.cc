#include "src/net/pull/transfer_buffer.h"

#include <map>
#include <utility>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "src/common/check.h"

namespace phalanx::net {
namespace {

// Returns a copy that shares no memory with `status`. Copies of a status share a reference-counted
// text. The counting in the system's Abseil is correct but invisible to ThreadSanitizer.
absl::Status Unshared(const absl::Status& status) {
  return absl::Status(status.code(), status.message());
}

}  // namespace

// The subscriptions of one buffer. A fired waiter stays in the table until its posted task removes
// it. If Unsubscribe removes it earlier, the task finds nothing.
class TransferBuffer::Waiters {
 public:
  // Returns true if there is a waiter that has not fired.
  bool any() const { return waiting_.load() != 0; }

  SubscriptionId Add(uint64_t slices, absl::Span<const uint64_t> seen, Executor& executor,
                     Task wake) {
    MutexLock lock(mu_);
    const SubscriptionId id = next_id_++;
    Waiter waiter{slices, {seen.begin(), seen.end()}, &executor, std::move(wake)};
    waiters_.emplace(id, std::move(waiter));
    waiting_.fetch_add(1);
    return id;
  }

  // Fires the waiters for `slice` below `to`, or all waiters if `slice` is -1.
  static void Fire(const std::shared_ptr<Waiters>& self, int slice, uint64_t to) {
    // Posts without the lock, since an executor that has shut down destroys the task at once.
    for (const auto& [id, executor] : self->Mark(slice, to)) {
      executor->Post([self, id = id] {
        Task wake = self->Take(id);
        if (wake) wake();
      });
    }
  }

  // Returns null if the waiter has been removed.
  Task Take(SubscriptionId id) {
    MutexLock lock(mu_);
    const auto it = waiters_.find(id);
    if (it == waiters_.end()) return nullptr;
    if (!it->second.fired) waiting_.fetch_sub(1);
    Task wake = std::move(it->second.wake);
    waiters_.erase(it);
    return wake;
  }

  void Clear() {
    std::map<SubscriptionId, Waiter> dropped;
    MutexLock lock(mu_);
    // A fired waiter stays: its posted task removes it.
    for (auto it = waiters_.begin(); it != waiters_.end();) {
      const auto next = std::next(it);
      if (!it->second.fired) dropped.insert(waiters_.extract(it));
      it = next;
    }
    waiting_.store(0);
  }

 private:
  struct Waiter {
    uint64_t slices;
    std::vector<uint64_t> seen;
    Executor* executor;
    Task wake;
    bool fired = false;

    bool Wants(int slice, uint64_t to) const {
      return slice < 0 || ((slices >> slice & 1) != 0 && to > seen[static_cast<size_t>(slice)]);
    }
  };

  using Fired = absl::InlinedVector<std::pair<SubscriptionId, Executor*>, 4>;
  Fired Mark(int slice, uint64_t to) {
    Fired fired;
    MutexLock lock(mu_);
    for (auto& [id, waiter] : waiters_) {
      if (waiter.fired || !waiter.Wants(slice, to)) continue;
      waiter.fired = true;
      waiting_.fetch_sub(1);
      fired.emplace_back(id, waiter.executor);
    }
    return fired;
  }

  std::atomic<int> waiting_{0};
  Mutex mu_;
  // Ordered, so that subscribers wake in the order of their subscriptions.
  std::map<SubscriptionId, Waiter> waiters_ ABSL_GUARDED_BY(mu_);
  SubscriptionId next_id_ ABSL_GUARDED_BY(mu_) = 1;
};

TransferBuffer::TransferBuffer(SliceLayout layout, absl::Span<char> bytes,
                               std::shared_ptr<void> memory)
    : layout_(layout),
      bytes_(bytes),
      memory_(std::move(memory)),
      waiters_(std::make_shared<Waiters>()),
      watermarks_(new std::atomic<uint64_t>[static_cast<size_t>(layout.slices)]) {
  PHALANX_CHECK(layout.slices >= 1 && layout.slices <= kMaxSlices, "1 to 64 slices");
  PHALANX_CHECK(bytes.size() == layout.object_bytes, "the mapping is as large as the object");
  for (int i = 0; i < layout.slices; ++i) watermarks_[static_cast<size_t>(i)].store(0);
}

TransferBuffer::~TransferBuffer() { waiters_->Clear(); }

absl::Span<char> TransferBuffer::slice(int slice) const {
  return bytes_.subspan(layout_.Begin(slice), layout_.Size(slice));
}

uint64_t TransferBuffer::watermark(int slice) const {
  return watermarks_[static_cast<size_t>(slice)].load();
}

uint64_t TransferBuffer::bytes_present() const {
  uint64_t sum = 0;
  for (int i = 0; i < layout_.slices; ++i) sum += watermark(i);
  return sum;
}

bool TransferBuffer::complete() const { return bytes_present() == layout_.object_bytes; }

void TransferBuffer::Publish(int slice, uint64_t to) {
  if (closed()) return;
  PHALANX_CHECK(to >= watermark(slice) && to <= layout_.Size(slice),
                "a watermark rises, and within its slice");
  watermarks_[static_cast<size_t>(slice)].store(to);
  // After the store: a subscriber either sees the new watermark or is counted here (see
  // watermarks_).
  if (waiters_->any()) Waiters::Fire(waiters_, slice, to);
}

void TransferBuffer::Close(const absl::Status& reason) {
  {
    MutexLock lock(mu_);
    if (closed_.load()) return;
    close_status_ = Unshared(reason);
    closed_.store(true);
  }
  Waiters::Fire(waiters_, -1, 0);
}

bool TransferBuffer::closed() const { return closed_.load(); }

absl::Status TransferBuffer::close_status() const {
  if (!closed()) return absl::OkStatus();
  MutexLock lock(mu_);
  return Unshared(close_status_);
}

TransferBuffer::SubscriptionId TransferBuffer::Subscribe(uint64_t slices,
                                                         absl::Span<const uint64_t> seen,
                                                         Executor& executor, Task wake) {
  PHALANX_CHECK(seen.size() == static_cast<size_t>(layout_.slices), "one entry per slice");
  const SubscriptionId id = waiters_->Add(slices, seen, executor, std::move(wake));
  // A Publish before the waiter was in the table has not fired it.
  if (closed()) {
    Waiters::Fire(waiters_, -1, 0);
    return id;
  }
  for (int i = 0; i < layout_.slices; ++i) {
    if ((slices >> i & 1) == 0 || watermark(i) <= seen[static_cast<size_t>(i)]) continue;
    Waiters::Fire(waiters_, i, watermark(i));
    break;
  }
  return id;
}

void TransferBuffer::Unsubscribe(SubscriptionId id) { waiters_->Take(id); }

}  // namespace phalanx::net
