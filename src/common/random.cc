#include "src/common/random.h"

#include <sys/random.h>

#include <cerrno>

#include "src/common/check.h"

namespace phalanx {
namespace {

uint64_t SplitMix64(uint64_t& state) {
  state += 0x9e3779b97f4a7c15;
  uint64_t z = state;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
  z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
  return z ^ (z >> 31);
}

uint64_t RotateLeft(uint64_t x, int bits) { return (x << bits) | (x >> (64 - bits)); }

}  // namespace

Random::Random(uint64_t seed) {
  // xoshiro stays at zero if all its words are zero. Four values of one SplitMix64 sequence are
  // distinct, so this cannot happen.
  for (uint64_t& word : state_) word = SplitMix64(seed);
}

uint64_t Random::Next() {
  const uint64_t result = RotateLeft(state_[1] * 5, 7) * 9;
  const uint64_t t = state_[1] << 17;
  state_[2] ^= state_[0];
  state_[3] ^= state_[1];
  state_[1] ^= state_[2];
  state_[0] ^= state_[3];
  state_[2] ^= t;
  state_[3] = RotateLeft(state_[3], 45);
  return result;
}

uint64_t Random::Below(uint64_t bound) {
  PHALANX_CHECK(bound > 0, "Below(0) has no value to return");
  // Lemire's multiplication. Rejecting the low range removes the bias towards some values.
  const uint64_t threshold = -bound % bound;
  while (true) {
    const auto product = static_cast<unsigned __int128>(Next()) * bound;
    if (static_cast<uint64_t>(product) >= threshold) return static_cast<uint64_t>(product >> 64);
  }
}

bool Random::Chance(double probability) { return Unit() < probability; }

// 53 bits: all that the mantissa of a double holds, so that every value is equally likely.
double Random::Unit() { return static_cast<double>(Next() >> 11) * 0x1.0p-53; }

Random Random::Fork() { return Random(Next()); }

void SystemRandomBytes(void* out, size_t size) {
  auto* at = static_cast<char*>(out);
  while (size > 0) {
    // Requests over 256 bytes can return early or be interrupted by a signal.
    const ssize_t got = getrandom(at, size, 0);
    if (got < 0) {
      PHALANX_CHECK(errno == EINTR, "getrandom(2) failed");
      continue;
    }
    at += got;
    size -= static_cast<size_t>(got);
  }
}

uint64_t SystemRandom64() {
  uint64_t value;
  SystemRandomBytes(&value, sizeof(value));
  return value;
}

}  // namespace phalanx
