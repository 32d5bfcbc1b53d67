// Chooses the segment and the place for the next small object: free extents of several segments,
// best fit first. Pure.
//
// Offsets and lengths are multiples of kUnitBytes. Free neighbours become one extent. An extent
// that is given up (another process can still see it) is not allocated again; its segment can be
// closed once no extent in it is used.
//
// Thread rule: no thread, lock or system call inside. Owned by MemfdMemory.
#ifndef PHALANX_OBJECT_STORE_MEMORY_EXTENT_ALLOCATOR_H_
#define PHALANX_OBJECT_STORE_MEMORY_EXTENT_ALLOCATOR_H_

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <tuple>

#include "absl/status/status.h"

namespace phalanx::object_store {

class ExtentAllocator {
 public:
  static constexpr uint64_t kUnitBytes = 64;

  using SegmentId = uint64_t;
  struct Extent {
    SegmentId segment = 0;
    uint64_t offset = 0;
    uint64_t bytes = 0;
  };

  // REQUIRES: the id is new, bytes is a multiple of kUnitBytes and not 0.
  void AddSegment(SegmentId id, uint64_t bytes);
  // Adds free bytes at the end of a segment. REQUIRES: as AddSegment; the segment exists.
  void Grow(SegmentId id, uint64_t bytes);
  // REQUIRES: no extent in it is used.
  void RemoveSegment(SegmentId id);

  // Allocates from the smallest free extent that is large enough, at least kUnitBytes; the rest of
  // it stays free. Returns nothing if there is none.
  std::optional<Extent> Allocate(uint64_t bytes);
  // REQUIRES: `extent` was allocated and not freed since.
  void Free(const Extent& extent);
  // As Free, but the extent is not allocated again.
  void GiveUp(const Extent& extent);
  // The extent can be allocated again. REQUIRES: it was given up, and its segment exists.
  void TakeBack(const Extent& extent);

  // Bytes in use in a segment; 0: the segment can be removed.
  uint64_t used_bytes(SegmentId id) const { return segments_.at(id).used; }
  uint64_t given_up_bytes(SegmentId id) const { return segments_.at(id).given_up; }
  uint64_t free_bytes() const { return free_bytes_; }

  absl::Status CheckInvariants() const;

 private:
  struct Segment {
    uint64_t bytes = 0;
    uint64_t used = 0;
    uint64_t given_up = 0;
    std::map<uint64_t, uint64_t> free;  // offset to length
  };

  void Release(const Extent& extent);
  void AddFree(SegmentId id, Segment& segment, uint64_t offset, uint64_t bytes);
  void TakeFree(SegmentId id, Segment& segment, std::map<uint64_t, uint64_t>::iterator it);

  std::map<SegmentId, Segment> segments_;
  std::set<std::tuple<uint64_t, SegmentId, uint64_t>> by_size_;  // length, segment, offset
  uint64_t free_bytes_ = 0;
};

}  // namespace phalanx::object_store

#endif  // PHALANX_OBJECT_STORE_MEMORY_EXTENT_ALLOCATOR_H_
