// SharedMemory from anonymous files that other processes map.
//
//   1 MiB and more  A file each. A released file goes to a pool of warm ones (its pages exist and
//                   are mapped, so reuse costs nothing) and is taken again for sizes down to 4/5.
//   smaller         Extents of segments, files of 4 to 64 MiB that only this process can map
//                   writable. 100,000 objects of 100 KB need some 170 files. The pages of a segment
//                   are made a few at a time, a little before they are needed.
//
// A condemned file is closed, never pooled. A condemned extent waits until none of the viewers for
// which it was condemned maps the segment any more. When no other extent of the segment is used,
// the segment is closed.
//
// Thread rule: as SharedMemory. Files are made and unmapped on a helper thread that this owns.
#ifndef PHALANX_OBJECT_STORE_MEMORY_MEMFD_MEMORY_H_
#define PHALANX_OBJECT_STORE_MEMORY_MEMFD_MEMORY_H_

#include <cstdint>
#include <functional>
#include <memory>

#include "src/common/time/executor.h"
#include "src/object_store/memory/memfd_file.h"
#include "src/object_store/memory/shared_memory.h"

namespace phalanx::object_store {

struct MemfdMemoryOptions {
  // Warm files, live blocks and segments together. Warm files are given up first. Blocks and
  // segments exceed the limit only for a block that finds no place in a segment otherwise, by
  // first_segment_bytes at a time.
  uint64_t max_bytes = UINT64_MAX;
  uint64_t first_segment_bytes = uint64_t{4} << 20;
  // What the machine can still give: asked on the helper thread before pages are reserved (see
  // MemfdFile), and on the control loop once for many small blocks, for the sake of the records
  // that their owner keeps of them.
  MemfdFile::Available available;
};

class MemfdMemory : public SharedMemory {
 public:
  // `control` outlives this; it is the loop on which it is used.
  MemfdMemory(Executor& control, MemfdMemoryOptions options);
  // Requests that are under way are dropped without a call. Blocks may outlive it.
  ~MemfdMemory() override;

  void Allocate(uint64_t bytes, Allocated done) override;
  std::shared_ptr<MemoryBlock> TryAllocate(uint64_t bytes) override;
  void Reconsider() override;
  void Trim(uint64_t keep_bytes) override;
  SharedMemoryStats stats() const override;

 private:
  class Core;
  const std::shared_ptr<Core> core_;
};

}  // namespace phalanx::object_store

#endif  // PHALANX_OBJECT_STORE_MEMORY_MEMFD_MEMORY_H_
