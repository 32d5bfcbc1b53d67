#include "src/ps/rows/ring_sums.h"

#include "src/common/defects.h"
#include "src/common/elements.h"
#include "src/common/ids/ids.h"
#include "src/common/slice_layout.h"

namespace phalanx::ps::internal {

// Of other updates the result is no sum of the rows and the pushes. With kDrop and kFail a turn can
// be made without what has been pushed, when workers may have read it.
bool SumsInRing(const TableSpec& spec, uint64_t part_bytes, int workers, uint64_t least) {
  const uint64_t members = static_cast<uint64_t>(workers) + 1;
  return spec.update == Update::kSum && spec.sync == Sync::kBsp && spec.on_loss == OnLoss::kWait &&
         members <= kMaxSlices && part_bytes / members >= least;
}

// Slices end between elements then.
bool IsRingSum(uint64_t part_bytes, size_t sources) {
  return sources >= 3 && sources <= kMaxSlices && part_bytes / sources >= kElementRunAlignment;
}

// As the nodes of a ring cut an object: member s ends slice s with its own source.
std::vector<RingSlice> RingSlices(uint64_t part_bytes, size_t sources) {
  const SliceLayout layout{part_bytes, static_cast<int>(sources)};
  const bool from_first = DefectActive(Defect::kRingSlicesFromFirst);
  std::vector<RingSlice> slices;
  for (int slice = 0; slice < layout.slices; ++slice) {
    RingSlice& one = slices.emplace_back(RingSlice{layout.Begin(slice), layout.Size(slice), {}});
    for (size_t i = 1; i <= sources; ++i) {
      one.sources.push_back(from_first ? i - 1 : (static_cast<size_t>(slice) + i) % sources);
    }
  }
  return slices;
}

}  // namespace phalanx::ps::internal
