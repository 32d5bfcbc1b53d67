#include "src/common/slice_layout.h"

namespace phalanx {
namespace {

constexpr uint64_t kSliceAlignment = 64;

// Returns the size of every slice except the last.
uint64_t CommonSliceBytes(const SliceLayout& layout) {
  const uint64_t slices = static_cast<uint64_t>(layout.slices);
  if (slices == 1) return layout.object_bytes;
  const uint64_t even = layout.object_bytes / slices;
  const uint64_t up = (layout.object_bytes + slices * kSliceAlignment - 1) /
                      (slices * kSliceAlignment) * kSliceAlignment;
  // Rounding up gives the most even slices, but must leave bytes for the last one.
  if (up * (slices - 1) < layout.object_bytes) return up;
  return even >= kSliceAlignment ? even / kSliceAlignment * kSliceAlignment : even;
}

}  // namespace

uint64_t SliceLayout::Begin(int slice) const {
  return CommonSliceBytes(*this) * static_cast<uint64_t>(slice);
}

uint64_t SliceLayout::Size(int slice) const {
  return slice + 1 < slices ? CommonSliceBytes(*this) : object_bytes - Begin(slice);
}

}  // namespace phalanx
