// SharedMemory for simulation and unit tests: blocks of the heap that no other process can see.
//
// Blocks are reused at once and never zeroed, so that a reader of a released block reads other
// bytes. Tests can make allocations fail.
//
// Thread rule: as SharedMemory; it has no helper thread, `done` is posted to the executor.
#ifndef PHALANX_OBJECT_STORE_MEMORY_HEAP_MEMORY_H_
#define PHALANX_OBJECT_STORE_MEMORY_HEAP_MEMORY_H_

#include <cstdint>
#include <memory>

#include "src/common/time/executor.h"
#include "src/object_store/memory/shared_memory.h"

namespace phalanx::object_store {

class HeapMemory : public SharedMemory {
 public:
  // `executor` outlives this, and is the loop on which this is used.
  explicit HeapMemory(Executor& executor, uint64_t limit_bytes = UINT64_MAX);
  // Blocks may outlive it.
  ~HeapMemory() override;

  void Allocate(uint64_t bytes, Allocated done) override;
  // For small blocks only, as MemfdMemory.
  std::shared_ptr<MemoryBlock> TryAllocate(uint64_t bytes) override;
  // No block waits for a viewer.
  void Reconsider() override {}
  void Trim(uint64_t keep_bytes) override;
  SharedMemoryStats stats() const override;

  // The next `count` Allocates fail.
  void FailNext(int count) { fail_next_ = count; }

 private:
  class Pool;
  class Block;

  // Returns nullptr if the limit would be exceeded.
  std::shared_ptr<MemoryBlock> Make(uint64_t bytes);

  Executor& executor_;
  const uint64_t limit_bytes_;
  int fail_next_ = 0;
  const std::shared_ptr<Pool> pool_;
};

}  // namespace phalanx::object_store

#endif  // PHALANX_OBJECT_STORE_MEMORY_HEAP_MEMORY_H_
