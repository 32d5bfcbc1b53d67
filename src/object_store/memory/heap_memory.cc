#include "src/object_store/memory/heap_memory.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <map>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "src/common/check.h"
#include "src/common/threads/mutex.h"

namespace phalanx::object_store {
namespace {

constexpr uint64_t kAlignment = 64;
// Freed blocks are kept for reuse up to so many bytes.
constexpr uint64_t kMaxPooledBytes = 16 << 20;

uint64_t RoundUp(uint64_t bytes) {
  return std::max<uint64_t>(1, (bytes + kAlignment - 1) / kAlignment) * kAlignment;
}

}  // namespace

// Shared with the blocks, which may end on any thread and after the memory.
class HeapMemory::Pool {
 public:
  ~Pool() {
    for (auto& [size, pages] : free_) std::free(pages);
  }

  // Null when there are none.
  char* Take(uint64_t size) {
    MutexLock lock(mu_);
    stats_.allocated_bytes += size;
    ++stats_.files;
    const auto it = free_.find(size);
    if (it == free_.end()) {
      char* pages = static_cast<char*>(std::aligned_alloc(kAlignment, size));
      if (pages != nullptr) std::memset(pages, kNeverWritten, size);
      if (pages == nullptr) Forget(size);
      return pages;
    }
    char* pages = it->second;
    stats_.pooled_bytes -= size;
    free_.erase(it);
    return pages;
  }

  void Return(char* pages, uint64_t size, bool condemned) {
    MutexLock lock(mu_);
    Forget(size);
    if (condemned) stats_.condemned_bytes -= size;
    // A condemned block is never used again, as in a node, so that tests of that rule mean
    // something.
    if (condemned || stats_.pooled_bytes + size > kMaxPooledBytes) {
      std::free(pages);
      return;
    }
    // Whoever still reads it shall notice.
    std::memset(pages, kRecycled, size);
    free_.emplace(size, pages);
    stats_.pooled_bytes += size;
  }

  void Condemned(uint64_t size) {
    MutexLock lock(mu_);
    stats_.condemned_bytes += size;
  }

  void Trim(uint64_t keep_bytes) {
    MutexLock lock(mu_);
    while (stats_.pooled_bytes > keep_bytes) {
      const auto last = std::prev(free_.end());
      stats_.pooled_bytes -= last->first;
      std::free(last->second);
      free_.erase(last);
    }
  }

  SharedMemoryStats stats() const {
    MutexLock lock(mu_);
    return stats_;
  }

 private:
  static constexpr int kNeverWritten = 0xA5;
  static constexpr int kRecycled = 0xDD;

  void Forget(uint64_t size) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    stats_.allocated_bytes -= size;
    --stats_.files;
  }

  mutable Mutex mu_;
  std::multimap<uint64_t, char*> free_ ABSL_GUARDED_BY(mu_);
  SharedMemoryStats stats_ ABSL_GUARDED_BY(mu_);
};

class HeapMemory::Block : public MemoryBlock {
 public:
  Block(std::shared_ptr<Pool> pool, char* pages, uint64_t bytes)
      : pool_(std::move(pool)), pages_(pages), bytes_(bytes) {}
  ~Block() override { pool_->Return(pages_, RoundUp(bytes_), condemned_); }

  absl::Span<char> bytes() const override { return absl::MakeSpan(pages_, bytes_); }
  int read_only_fd() const override { return -1; }
  int writable_fd() const override { return -1; }
  int OpenFor(ViewerId) override { return -1; }
  uint64_t offset() const override { return 0; }
  uint64_t file_bytes() const override { return bytes_; }
  uint64_t file_id() const override { return 0; }
  void Condemn(ViewerId) override {
    if (!std::exchange(condemned_, true)) pool_->Condemned(RoundUp(bytes_));
  }

 private:
  const std::shared_ptr<Pool> pool_;
  char* const pages_;
  const uint64_t bytes_;
  bool condemned_ = false;
};

HeapMemory::HeapMemory(Executor& executor, uint64_t limit_bytes)
    : executor_(executor), limit_bytes_(limit_bytes), pool_(std::make_shared<Pool>()) {}

HeapMemory::~HeapMemory() = default;

std::shared_ptr<MemoryBlock> HeapMemory::Make(uint64_t bytes) {
  if (bytes > limit_bytes_ || stats().allocated_bytes > limit_bytes_ - bytes) return nullptr;
  char* pages = pool_->Take(RoundUp(bytes));
  return pages == nullptr ? nullptr : std::make_shared<Block>(pool_, pages, bytes);
}

std::shared_ptr<MemoryBlock> HeapMemory::TryAllocate(uint64_t bytes) {
  return bytes >= kOwnFileBytes || fail_next_ > 0 ? nullptr : Make(bytes);
}

void HeapMemory::Allocate(uint64_t bytes, Allocated done) {
  std::shared_ptr<MemoryBlock> block;
  if (fail_next_ > 0) {
    --fail_next_;
  } else {
    block = Make(bytes);
  }
  absl::StatusOr<std::shared_ptr<MemoryBlock>> result = std::move(block);
  if (*result == nullptr) {
    result = absl::ResourceExhaustedError(absl::StrCat("no memory for ", bytes,
                                                       " bytes: ", stats().allocated_bytes, " of ",
                                                       limit_bytes_, " are allocated"));
  }
  // Posted, as a helper thread would answer: callers must not rely on an answer within the call.
  executor_.Post(
      [done = std::move(done), result = std::move(result)]() mutable { done(std::move(result)); });
}

void HeapMemory::Trim(uint64_t keep_bytes) { pool_->Trim(keep_bytes); }

SharedMemoryStats HeapMemory::stats() const { return pool_->stats(); }

}  // namespace phalanx::object_store
