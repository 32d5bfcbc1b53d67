// The seam for memory that processes share. The pages of a block exist (lack of memory is a Status,
// never a SIGBUS), and are reused only when no other process can see them any more.
//
// Implementations: MemfdMemory (blocks of 1 MiB and more have a memfd each, from a pool of warm
// ones; smaller ones are extents of segments that only this process maps writable) and HeapMemory
// (simulation, unit tests). Both pass shared_memory_conformance.h.
//
// Thread rule: everything on the control loop, except for the reference counts of blocks: the last
// reference can be dropped on any thread (a posted task gives the pages back).
#ifndef PHALANX_OBJECT_STORE_MEMORY_SHARED_MEMORY_H_
#define PHALANX_OBJECT_STORE_MEMORY_SHARED_MEMORY_H_

#include <cstdint>
#include <memory>

#include "absl/functional/any_invocable.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace phalanx::object_store {

// Objects of at least this many bytes have a file of their own, which clients can map.
inline constexpr uint64_t kOwnFileBytes = 1 << 20;

// A process that sees blocks from outside: a client of the store, by the store's number.
using ViewerId = uint64_t;

class MemoryBlock {
 public:
  // The last reference gives the pages back: to the pool, unless the block is condemned (see
  // Condemn). The store's pins last as long as a client reads the block.
  virtual ~MemoryBlock() = default;

  // As many bytes as were requested, writable by this process, aligned to 64 bytes.
  virtual absl::Span<char> bytes() const = 0;

  // Where a client finds the bytes: a descriptor of the file and the offset in it. -1 if there is
  // no file (heap). `read_only_fd` cannot be mapped writable. `writable_fd` is for the creator of a
  // block with a file of its own, else -1.
  virtual int read_only_fd() const = 0;
  virtual int writable_fd() const = 0;
  // Returns a new descriptor like read_only_fd for this viewer; the caller closes it. The memory
  // knows whether the viewer, or a process that it forked, still maps the file by this descriptor
  // (see Condemn). -1 if the process has no descriptor left.
  virtual int OpenFor(ViewerId viewer) = 0;
  virtual uint64_t offset() const = 0;
  // The length of the whole file: clients map a file once.
  virtual uint64_t file_bytes() const = 0;
  // The same number for all blocks of one file, never reused in this process, so that clients map a
  // segment once.
  virtual uint64_t file_id() const = 0;

  // This viewer can see the pages after the last reference is gone, without a pin. A file of its
  // own is then closed, never reused. An extent of a segment waits until neither the viewer nor a
  // process that it forked maps the segment (Reconsider), or is given up with the segment.
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

  // Calls `done` once, on the control loop, never inside this call, with the block or with
  // ResourceExhausted (the text names the bytes that were requested and those that there are). The
  // pages exist by then: a helper thread reserves and zeroes them. They contain zeroes or bytes of
  // earlier objects of this store, so only the writer sees bytes that were not written.
  using Allocated = absl::AnyInvocable<void(absl::StatusOr<std::shared_ptr<MemoryBlock>>)>;
  virtual void Allocate(uint64_t bytes, Allocated done) = 0;
  // Returns such a block if its pages exist already and no Allocate waits for them, else nullptr:
  // then Allocate says whether there is one. Most small objects are allocated so, without a task of
  // the loop for each.
  virtual std::shared_ptr<MemoryBlock> TryAllocate(uint64_t bytes) = 0;

  // A viewer's process has ended: extents that waited for it are free, unless a process that it
  // forked still maps them. These are checked again before a new segment is made.
  virtual void Reconsider() = 0;

  // Gives pooled pages back to the system until at most `keep_bytes` are pooled.
  virtual void Trim(uint64_t keep_bytes) = 0;

  virtual SharedMemoryStats stats() const = 0;
};

}  // namespace phalanx::object_store

#endif  // PHALANX_OBJECT_STORE_MEMORY_SHARED_MEMORY_H_
