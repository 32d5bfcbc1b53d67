// The seam for randomness: a seeded generator, and the only function that takes a seed from the
// system.
//
// Cores take `Random&`, so that a run replays exactly from its seed. Not for secrets: nonces come
// from `SystemRandomBytes` (getrandom(2)). One instance belongs to one loop.
#ifndef PHALANX_COMMON_RANDOM_H_
#define PHALANX_COMMON_RANDOM_H_

#include <cstddef>
#include <cstdint>

namespace phalanx {

// SplitMix64-seeded xoshiro256** (Blackman and Vigna, 2018): the same sequence on every platform.
class Random {
 public:
  explicit Random(uint64_t seed);

  uint64_t Next();
  // Returns a number that is uniform in [0, bound). REQUIRES: bound > 0.
  uint64_t Below(uint64_t bound);
  // Returns true with the given probability.
  bool Chance(double probability);
  // Returns a number that is uniform in [0, 1).
  double Unit();
  // Returns a generator with an independent sequence. What is drawn from it does not change the
  // sequence of its parent.
  Random Fork();

 private:
  uint64_t state_[4];
};

// Fills [out, out + size) from getrandom(2). Any thread.
void SystemRandomBytes(void* out, size_t size);
uint64_t SystemRandom64();

}  // namespace phalanx

#endif  // PHALANX_COMMON_RANDOM_H_
