// Versions of what reductions compute, and the numbers of reductions. Versions name the bytes of a
// partial result as generations name those of objects; numbers tell a reduction from another of the
// same target, in messages and tombstones. Neither is ever taken for the other, or for a
// generation: no life of a node has such an incarnation.
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

// Of the reduction that a shard began in the life that the two random numbers stand for, and
// counted as that; valid. REQUIRES: count >= 1.
inline Generation ReductionNumber(uint64_t low, uint64_t high, uint64_t count) {
  return {{low | 1, high | kVersionIncarnation}, count + 1};
}

inline bool IsReductionNumber(const Generation& generation) {
  return generation.sequence > 1 && (generation.creator.incarnation & kVersionIncarnation) != 0;
}

// Of two reductions of one target: shards count on from all the numbers that they are told.
inline bool BegunLater(const Generation& a, const Generation& b) {
  return a.sequence != b.sequence ? a.sequence > b.sequence : b.creator < a.creator;
}

}  // namespace phalanx

#endif  // PHALANX_COMMON_VERSION_H_
