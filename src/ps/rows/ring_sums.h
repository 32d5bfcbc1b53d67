// Ring sums: turns that are made by one reduction in a ring of the server's node and those of all
// workers (ReduceSpec::Order::kRing), which carries the sum and the new rows over each link in one.
//
// The sources are the rows, then the objects that were pushed, in the order of workers and then of
// their pushes. Of n sources, slice s of n is the left fold of sources s + 1, ..., n - 1, 0, ...,
// s: another order than that of other turns, and the same in each run, since it depends on the
// table, the workers and the pushes alone. Where no ring can be made, each slice is summed by a
// reduction of its own.
//
// Values and pure functions; any thread.
#ifndef PHALANX_PS_ROWS_RING_SUMS_H_
#define PHALANX_PS_ROWS_RING_SUMS_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "phalanx/ps_table.h"

namespace phalanx::ps::internal {

// The least slice for which a ring is faster than a tree.
inline constexpr uint64_t kRingSliceBytes = uint64_t{256} << 10;

// Turns of a part of so many bytes can be ring sums: what is pushed is added to the rows, a worker
// that dies is waited for, and the slices of all workers and the server have `least` bytes.
// REQUIRES: PushesObjects.
bool SumsInRing(const TableSpec& spec, uint64_t part_bytes, int workers,
                uint64_t least = kRingSliceBytes);
// A turn with so many sources, of such a table, is one.
bool IsRingSum(uint64_t part_bytes, size_t sources);

struct RingSlice {
  uint64_t begin;
  uint64_t bytes;
  std::vector<size_t> sources;  // in the order of the fold
};
// REQUIRES: IsRingSum.
std::vector<RingSlice> RingSlices(uint64_t part_bytes, size_t sources);

}  // namespace phalanx::ps::internal

#endif  // PHALANX_PS_ROWS_RING_SUMS_H_
