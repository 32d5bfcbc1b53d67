// SliceAssembler: puts the segments of one pull into their places in the buffer, and publishes
// them.
//
//   Begin ──► filling ──all bytes of the requested slices published──► full
//                └────────────────────── Detach ───────────────────────┴──► detached
//
// Invariants
//  1. Segments of a slice are contiguous, because the watermark declares every byte below it final.
//     The assembler rejects any other segment.
//  2. Without checksums the watermark follows every read. With checksums it passes a segment after
//     its check.
//  3. After Detach the assembler does not touch the buffer, whose memory can be freed then.
//
// Part of a PullReceiver; one loop.
#ifndef PHALANX_NET_PULL_SLICE_ASSEMBLER_H_
#define PHALANX_NET_PULL_SLICE_ASSEMBLER_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "src/common/slice_layout.h"
#include "src/net/frame/frame.h"
#include "src/net/pull/data_plane_counters.h"
#include "src/net/pull/transfer_buffer.h"

namespace phalanx::net {

class SliceAssembler {
 public:
  // `slices`: bit i requests slice i. `checksums`: every segment must have one. Counts published
  // bytes and those that fail their check. REQUIRES: `counters` outlives the assembler.
  SliceAssembler(std::shared_ptr<TransferBuffer> into, uint64_t slices, bool checksums,
                 DataPlaneCounters& counters);

  // Returns the parts to request: each requested slice that is not full, from its watermark.
  // REQUIRES: called once, before the following methods; there is such a slice.
  std::vector<OpenPayload::Want> Begin();

  // REQUIRES, up to Detach: not detached.
  const SliceLayout& layout() const { return into_->layout(); }

  // Returns the place of the payload of a SEGMENT. Returns InvalidArgument if the segment does not
  // fit the request, and Aborted if the buffer is closed.
  absl::StatusOr<absl::Span<char>> Place(const FrameHeader& header);
  // `arrived` bytes of the segment that was placed last are in place. Returns DataLoss if the whole
  // payload has arrived and does not match its checksum.
  absl::Status Arrived(const FrameHeader& header, size_t arrived);

  // True if the assembler has published every requested byte.
  bool full() const { return bytes_missing_ == 0; }
  // True if the buffer has every requested byte. A buffer that was closed meanwhile has ignored the
  // last ones that a full assembler has published.
  bool BufferHasAll() const;

  // Drops the reference to the buffer.
  void Detach() { into_.reset(); }

  uint64_t bytes_published() const { return bytes_published_; }

 private:
  bool Requested(int slice) const { return (slices_ >> slice & 1) != 0; }
  absl::Status CheckFits(const FrameHeader& header) const;
  absl::Status VerifyChecksum(const FrameHeader& header) const;
  void Publish(const FrameHeader& header, uint64_t to);

  // Constant after construction, but for Detach.
  std::shared_ptr<TransferBuffer> into_;
  const uint64_t slices_;
  const bool checksums_;
  DataPlaneCounters& counters_;

  // Per slice: the end of the published bytes.
  std::array<uint64_t, kMaxSlices> cursor_ = {};
  uint64_t bytes_missing_ = 0;
  uint64_t bytes_published_ = 0;
  // The segment being read.
  absl::Span<char> place_;
};

}  // namespace phalanx::net

#endif  // PHALANX_NET_PULL_SLICE_ASSEMBLER_H_
