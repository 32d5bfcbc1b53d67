#include "src/object_store/memory/extent_allocator.h"

#include <algorithm>
#include <iterator>

#include "absl/strings/str_cat.h"
#include "src/common/check.h"

namespace phalanx::object_store {

void ExtentAllocator::AddSegment(SegmentId id, uint64_t bytes) {
  PHALANX_CHECK(bytes > 0 && bytes % kUnitBytes == 0, "segments have whole units");
  const auto [it, added] = segments_.try_emplace(id);
  PHALANX_CHECK(added, "a segment is added once");
  it->second.bytes = bytes;
  AddFree(id, it->second, 0, bytes);
}

void ExtentAllocator::Grow(SegmentId id, uint64_t bytes) {
  const auto it = segments_.find(id);
  PHALANX_CHECK(it != segments_.end() && bytes > 0 && bytes % kUnitBytes == 0,
                "a segment that exists grows by whole units");
  const Extent added{id, it->second.bytes, bytes};
  it->second.bytes += bytes;
  // As if it were in use, so that Free can merge it with the extent before it.
  it->second.used += bytes;
  Free(added);
}

void ExtentAllocator::RemoveSegment(SegmentId id) {
  const auto it = segments_.find(id);
  // Extents that were given up do not count: their pages go with the last process that maps them.
  PHALANX_CHECK(it != segments_.end() && it->second.used == 0, "nothing in the segment is used");
  while (!it->second.free.empty()) TakeFree(id, it->second, it->second.free.begin());
  segments_.erase(it);
}

std::optional<ExtentAllocator::Extent> ExtentAllocator::Allocate(uint64_t bytes) {
  bytes = std::max(bytes, kUnitBytes);
  bytes = (bytes + kUnitBytes - 1) / kUnitBytes * kUnitBytes;
  const auto found = by_size_.lower_bound({bytes, 0, 0});
  if (found == by_size_.end()) return std::nullopt;
  const auto [length, id, offset] = *found;
  Segment& segment = segments_.at(id);
  TakeFree(id, segment, segment.free.find(offset));
  if (length > bytes) AddFree(id, segment, offset + bytes, length - bytes);
  segment.used += bytes;
  return Extent{id, offset, bytes};
}

void ExtentAllocator::Release(const Extent& extent) {
  const auto it = segments_.find(extent.segment);
  // A second Free would give one extent to two objects, whose bytes would mix.
  PHALANX_CHECK(it != segments_.end() && it->second.used >= extent.bytes,
                "an extent is freed once, while its segment is there");
  it->second.used -= extent.bytes;
}

void ExtentAllocator::Free(const Extent& extent) {
  Release(extent);
  Segment& segment = segments_.at(extent.segment);
  uint64_t begin = extent.offset;
  uint64_t end = extent.offset + extent.bytes;
  auto next = segment.free.lower_bound(begin);
  if (next != segment.free.end() && next->first == end) {
    end += next->second;
    // Advanced first: TakeFree erases the entry.
    TakeFree(extent.segment, segment, next++);
  }
  // Free neighbours become one extent: otherwise a segment would end as many small ones.
  if (next != segment.free.begin()) {
    const auto previous = std::prev(next);
    if (previous->first + previous->second == begin) {
      begin = previous->first;
      TakeFree(extent.segment, segment, previous);
    }
  }
  AddFree(extent.segment, segment, begin, end - begin);
}

void ExtentAllocator::GiveUp(const Extent& extent) {
  Release(extent);
  // Neither free nor used: a process may still see it, but it does not keep the segment open.
  segments_.at(extent.segment).given_up += extent.bytes;
}

void ExtentAllocator::TakeBack(const Extent& extent) {
  const auto it = segments_.find(extent.segment);
  PHALANX_CHECK(it != segments_.end() && it->second.given_up >= extent.bytes,
                "an extent is taken back once, while its segment is there");
  it->second.given_up -= extent.bytes;
  // As if it were in use, so that Free can merge it with its neighbours.
  it->second.used += extent.bytes;
  Free(extent);
}

void ExtentAllocator::AddFree(SegmentId id, Segment& segment, uint64_t offset, uint64_t bytes) {
  segment.free.emplace(offset, bytes);
  by_size_.emplace(bytes, id, offset);
  free_bytes_ += bytes;
}

void ExtentAllocator::TakeFree(SegmentId id, Segment& segment,
                               std::map<uint64_t, uint64_t>::iterator it) {
  by_size_.erase({it->second, id, it->first});
  free_bytes_ -= it->second;
  segment.free.erase(it);
}

absl::Status ExtentAllocator::CheckInvariants() const {
  uint64_t free = 0;
  size_t extents = 0;
  for (const auto& [id, segment] : segments_) {
    uint64_t here = 0;
    uint64_t last_end = 0;
    bool first = true;
    for (const auto& [offset, bytes] : segment.free) {
      const bool apart = first || offset > last_end;
      if (!apart || !by_size_.contains({bytes, id, offset})) {
        return absl::InternalError(absl::StrCat("segment ", id, ": free extent at ", offset,
                                                " touches another or is not listed by size"));
      }
      first = false;
      last_end = offset + bytes;
      here += bytes;
      ++extents;
    }
    if (here + segment.used + segment.given_up != segment.bytes || last_end > segment.bytes) {
      return absl::InternalError(absl::StrCat("segment ", id, ": ", here, " free, ", segment.used,
                                              " used and ", segment.given_up, " given up of ",
                                              segment.bytes));
    }
    free += here;
  }
  if (free != free_bytes_ || extents != by_size_.size()) {
    return absl::InternalError("the list by size does not match the segments");
  }
  return absl::OkStatus();
}

}  // namespace phalanx::object_store
