// FillOrder: the slices in which a client copies a large input into its node's memory, in the order
// in which the node's plan is likely to need them. A wrong guess costs time, and nothing else: the
// node waits for the bytes that a step needs.
//
// A ring begins with the part of its own node and goes down, so the copies of node 1 of 4 are:
//
//   |-- part 0 --|-- part 1 --|-- part 2 --|-- part 3 --|
//        2nd      1st                          3rd ...
//
// Each slice is twice as large as the last one: it is copied while the nodes pass that, which takes
// longer. So a few messages name all of them.
//
// A value; one thread at a time. Pure.
#ifndef PHALANX_JOBS_OVERLAP_FILL_ORDER_H_
#define PHALANX_JOBS_OVERLAP_FILL_ORDER_H_

#include <cstdint>
#include <vector>

#include "src/jobs/group/group_call.h"
#include "src/jobs/overlap/byte_ranges.h"

namespace phalanx::jobs {

// Inputs of so many bytes are copied beside the call; smaller ones are copied before it.
inline constexpr uint64_t kFilledLateBytes = 256 << 10;
inline constexpr uint64_t kFirstSliceBytes = 128 << 10;
// More parts than this are grouped.
inline constexpr int kMaxFillParts = 64;

class FillOrder {
 public:
  // One slice.
  explicit FillOrder(uint64_t bytes) : parts_{{0, bytes}}, slice_(bytes) {}
  // Of an input of `bytes` bytes at node `node` of the `nodes` that have members.
  FillOrder(CallKind kind, uint64_t bytes, int nodes, int node);
  // Returns the next slice, as ranges that are not adjacent; nothing after the last one.
  std::vector<ByteRange> Next();

 private:
  // Not copied yet, the next one last.
  std::vector<ByteRange> parts_;
  uint64_t slice_ = kFirstSliceBytes;
};

}  // namespace phalanx::jobs

#endif  // PHALANX_JOBS_OVERLAP_FILL_ORDER_H_
