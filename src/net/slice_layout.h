// How an object is cut into slices. A value.
#ifndef PHALANX_NET_SLICE_LAYOUT_H_
#define PHALANX_NET_SLICE_LAYOUT_H_

#include <cstdint>

namespace phalanx::net {

// How an object of `object_bytes` bytes is cut: slice i is [Begin(i), Begin(i) + Size(i)) of the
// object. All slices but the last have the same size, a multiple of 64 bytes where the object has
// at least 64 bytes per slice. The last one takes what is left.
struct SliceLayout {
  uint64_t object_bytes = 0;
  int slices = 1;

  uint64_t Begin(int slice) const;
  uint64_t Size(int slice) const;
  friend bool operator==(const SliceLayout&, const SliceLayout&) = default;
};

}  // namespace phalanx::net

#endif  // PHALANX_NET_SLICE_LAYOUT_H_
