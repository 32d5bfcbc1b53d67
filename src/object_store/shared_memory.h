// The seam for memory that processes share: blocks that really exist (running out is a Status,
// never a SIGBUS), recycled only when nobody can see them any more.
//
// Implementations: MemfdMemory (blocks of 1 MiB and more have a memfd each, from a pool of warm
// ones; smaller ones are extents of segments that only this process maps writable) and HeapMemory
// (simulation, unit tests). Both pass shared_memory_conformance.h.
//
// Thread rule: everything on the control loop, but for the reference counts of blocks, which may be
// dropped on any thread (the block's pages go back by a posted task).
#ifndef PHALANX_OBJECT_STORE_SHARED_MEMORY_H_
#define PHALANX_OBJECT_STORE_SHARED_MEMORY_H_

#include <cstdint>
#include <memory>

#include "absl/functional/any_invocable.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace phalanx::object_store {

// Objects of at least so many bytes have a file of their own, which clients may map.
inline constexpr uint64_t kOwnFileBytes = 1 << 20;

// Who looks at blocks from outside this process: a client of the store, by the store's number.
using ViewerId = uint64_t;

class MemoryBlock {
 public:
  // The last reference gives the pages back: to the pool when nobody outside this process saw them
  // or all who did have let go (the store's pins say so), else, if condemned, as Condemn says.
  virtual ~MemoryBlock() = default;

  // Exactly the bytes asked for, writable by this process, 64-byte aligned.
  virtual absl::Span<char> bytes() const = 0;

  // Where a client finds them: a descriptor of the file and the offset in it. -1 when there is none
  // (heap). `read_only_fd` cannot be mapped writable; `writable_fd` is for the creator of a block
  // with a file of its own, else -1.
  virtual int read_only_fd() const = 0;
  virtual int writable_fd() const = 0;
  // A new descriptor like read_only_fd, to be sent to this viewer; the caller closes it. What it
  // maps by it is known to last as long as the mapping does, in children that it forks too (see
  // Condemn). -1 when there is no descriptor left.
  virtual int OpenFor(ViewerId viewer) = 0;
  virtual uint64_t offset() const = 0;
  // Length of the mapping that shows the whole file: clients map a file once.
  virtual uint64_t file_bytes() const = 0;
  // The same number for all blocks of one file, never reused in this process: lets clients map a
  // segment once.
  virtual uint64_t file_id() const = 0;

  // This viewer may still see the pages after the last reference is gone, without a pin: a file of
  // its own is closed, never reused. An extent of a segment waits until the viewer, and whatever it
  // forked, maps nothing of the segment any more (Reconsider), or is given up with the segment.
  virtual void Condemn(ViewerId viewer) = 0;
};

struct SharedMemoryStats {
  uint64_t allocated_bytes = 0;  // in blocks that live
  uint64_t pooled_bytes = 0;     // warm, free
  uint64_t condemned_bytes = 0;  // in blocks that live, and in extents that wait
  uint64_t files = 0;
};

class SharedMemory {
 public:
  virtual ~SharedMemory() = default;

  // `done` runs once, on the control loop, never inside this call: the block, or ResourceExhausted
  // (text says how much was asked, how much there is). The pages exist when it is called; zeroing
  // and reserving happen on a helper thread. Their content is arbitrary bytes of earlier objects of
  // this store or zeroes: nobody but the writer may see bytes that were not written.
  using Allocated = absl::AnyInvocable<void(absl::StatusOr<std::shared_ptr<MemoryBlock>>)>;
  virtual void Allocate(uint64_t bytes, Allocated done) = 0;

  // A process of a viewer has ended: extents that waited for it are free again, unless a child of
  // it still maps them. Those are looked at again before fresh memory is made.
  virtual void Reconsider() = 0;

  // Gives pooled pages back to the system until at most so many bytes are pooled.
  virtual void Trim(uint64_t keep_bytes) = 0;

  virtual SharedMemoryStats stats() const = 0;
};

}  // namespace phalanx::object_store

#endif  // PHALANX_OBJECT_STORE_SHARED_MEMORY_H_
