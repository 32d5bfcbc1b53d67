#include "src/sim/cluster/ordered_floats.h"

#include <cstring>

#include "src/common/slice_layout.h"

namespace phalanx::sim {
namespace {

constexpr float kLarge = 1e8f;

// What all sources have at one element.
struct Element {
  int large;
  int opposite;
  uint32_t small;

  float Of(int source) const {
    if (source == large) return kLarge;
    if (source == opposite) return -kLarge;
    return static_cast<float>(1 + ((small + static_cast<uint32_t>(source)) & 3));
  }
};

// Without a division: a run makes millions of them.
Element ElementAt(uint64_t number, uint32_t sources, uint64_t at) {
  uint32_t z = static_cast<uint32_t>(at) * 0x9e3779b1 + static_cast<uint32_t>(number) * 0x85ebca77;
  z = (z ^ (z >> 15)) * 0x2c1b3c6d;
  z = (z ^ (z >> 12)) * 0x297a2d39;
  z ^= z >> 15;
  const uint32_t large = ((z & 0xffff) * sources) >> 16;
  const uint32_t opposite = large + 1 + (((z >> 16) * (sources - 1)) >> 16);
  return {static_cast<int>(large),
          static_cast<int>(opposite < sources ? opposite : opposite - sources), z >> 7};
}

}  // namespace

std::string OrderedFloats::Source(int source) const {
  std::string all(bytes(), '\0');
  const uint32_t count = static_cast<uint32_t>(sources);
  for (uint64_t i = 0; i < elements; ++i) {
    const float value = ElementAt(number, count, i).Of(source);
    std::memcpy(all.data() + i * sizeof value, &value, sizeof value);
  }
  return all;
}

std::string OrderedFloats::RingSum() const {
  std::string all(bytes(), '\0');
  const uint32_t count = static_cast<uint32_t>(sources);
  const SliceLayout layout{bytes(), sources};
  for (int slice = 0; slice < sources; ++slice) {
    const uint64_t begin = layout.Begin(slice) / sizeof(float);
    const uint64_t end = begin + layout.Size(slice) / sizeof(float);
    for (uint64_t i = begin; i < end; ++i) {
      const Element element = ElementAt(number, count, i);
      float sum = element.Of((slice + 1) % sources);
      for (int k = 2; k <= sources; ++k) {
        const int source = slice + k;
        sum += element.Of(source < sources ? source : source - sources);
      }
      std::memcpy(all.data() + i * sizeof sum, &sum, sizeof sum);
    }
  }
  return all;
}

}  // namespace phalanx::sim
