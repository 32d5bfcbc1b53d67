// Sources of floats whose sum shows the order in which they were added: of each element one source
// has 1e8, another one -1e8, and the others small numbers, which are lost beside a large one.
// Testonly.
//
// Pure; any thread.
#ifndef PHALANX_SIM_CLUSTER_ORDERED_FLOATS_H_
#define PHALANX_SIM_CLUSTER_ORDERED_FLOATS_H_

#include <cstdint>
#include <string>

namespace phalanx::sim {

// Of one reduction. Two with other numbers have other elements.
struct OrderedFloats {
  uint64_t number = 0;
  int sources = 3;
  uint64_t elements = 0;  // of each source

  uint64_t bytes() const { return elements * sizeof(float); }
  // The bytes of this source.
  std::string Source(int source) const;
  // The bytes of the sum in the order of a ring, by the definition at ReduceSpec::Order::kRing.
  std::string RingSum() const;
};

}  // namespace phalanx::sim

#endif  // PHALANX_SIM_CLUSTER_ORDERED_FLOATS_H_
