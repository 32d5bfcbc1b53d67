// SliceLayout: how an object is cut into slices. A value.
#ifndef PHALANX_COMMON_SLICE_LAYOUT_H_
#define PHALANX_COMMON_SLICE_LAYOUT_H_

#include <cstdint>

namespace phalanx {

// Slice i of an object of `object_bytes` bytes is [Begin(i), Begin(i) + Size(i)). All slices except
// the last have the same size, a multiple of 64 bytes if the object has at least 64 bytes per
// slice. The last slice has the rest.
struct SliceLayout {
  uint64_t object_bytes = 0;
  int slices = 1;

  uint64_t Begin(int slice) const;
  uint64_t Size(int slice) const;
  friend bool operator==(const SliceLayout&, const SliceLayout&) = default;
};

}  // namespace phalanx

#endif  // PHALANX_COMMON_SLICE_LAYOUT_H_
