// Versions of what reductions compute. They name the bytes of a partial result as generations name
// those of objects, and are never taken for one: no life of a node has such an incarnation.
//
// Pure functions, any thread.
#ifndef PHALANX_COMMON_VERSION_H_
#define PHALANX_COMMON_VERSION_H_

#include <cstdint>

#include "src/common/ids.h"

namespace phalanx {

inline constexpr uint64_t kVersionIncarnation = uint64_t{1} << 63;

// The version that a hash of 128 bits stands for; valid.
inline Generation VersionOfHash(uint64_t low, uint64_t high) {
  return {{low | 1, high | kVersionIncarnation}, 1};
}

inline bool IsVersion(const Generation& generation) {
  return generation.sequence == 1 && (generation.creator.incarnation & kVersionIncarnation) != 0;
}

}  // namespace phalanx

#endif  // PHALANX_COMMON_VERSION_H_
