// Versions of slots' outputs, and ids of reductions. A version identifies the bytes of a partial
// result as a generation identifies those of an object. A reduction id distinguishes two reductions
// of one target in messages and tombstones. The two cannot be confused with each other or with a
// generation: no node's incarnation has the bit kVersionIncarnation.
//
// Pure functions, any thread.
#ifndef PHALANX_COMMON_IDS_VERSION_H_
#define PHALANX_COMMON_IDS_VERSION_H_

#include <cstdint>

#include "src/common/ids/ids.h"

namespace phalanx {

inline constexpr uint64_t kVersionIncarnation = uint64_t{1} << 63;

// Returns the version for a hash of 128 bits. The result is valid().
inline Generation VersionOfHash(uint64_t low, uint64_t high) {
  return {{low | 1, high | kVersionIncarnation}, 1};
}

inline bool IsVersion(const Generation& generation) {
  return generation.sequence == 1 && (generation.creator.incarnation & kVersionIncarnation) != 0;
}

// Returns the id of the `count`-th reduction of one incarnation of a shard, which the two random
// numbers identify. The result is valid(). REQUIRES: count >= 1.
inline Generation ReductionNumber(uint64_t low, uint64_t high, uint64_t count) {
  return {{low | 1, high | kVersionIncarnation}, count + 1};
}

inline bool IsReductionNumber(const Generation& generation) {
  return generation.sequence > 1 && (generation.creator.incarnation & kVersionIncarnation) != 0;
}

// True if `a` began after `b`. REQUIRES: both have the same target. A restarted shard
// continues from the greatest count that nodes report to it.
inline bool BegunLater(const Generation& a, const Generation& b) {
  return a.sequence != b.sequence ? a.sequence > b.sequence : b.creator < a.creator;
}

}  // namespace phalanx

#endif  // PHALANX_COMMON_IDS_VERSION_H_
