#include "src/ps/rows/half_floats.h"

#include <bit>
#include <cstring>

namespace phalanx::ps::internal {
namespace {

float AsFloat(uint32_t bits) { return std::bit_cast<float>(bits); }
uint32_t AsBits(float value) { return std::bit_cast<uint32_t>(value); }

// The exponent of a power of two in an f32.
constexpr uint32_t Exponent(int power) { return static_cast<uint32_t>(127 + power) << 23; }

// Between the exponents of the two types, whose biases are 127 and 15.
constexpr uint32_t kRebase = (127u - 15u) << 23;

// All cases are computed and one is chosen, so that there is no branch in the loop.
// Round to nearest, ties to even, by adding half of the last place that stays, less one, plus its
// own bit. A carry goes into the exponent, where it belongs.
uint32_t Narrow(uint32_t bits) {
  const uint32_t sign = bits & 0x80000000u;
  const uint32_t magnitude = bits ^ sign;
  const uint32_t is_odd = (magnitude >> 13) & 1;
  const uint32_t normal = (magnitude - kRebase + is_odd + 0xfff) >> 13;
  // In the binade of 1/2 the last bit of an f32 is that of the smallest f16.
  const uint32_t denormal = AsBits(AsFloat(magnitude) + 0.5f) - Exponent(-1);
  const uint32_t nan = 0x7e00u | ((magnitude >> 13) & 0x1ff);
  uint32_t half = magnitude < Exponent(-14) ? denormal : normal;
  half = magnitude >= Exponent(16) ? 0x7c00u : half;
  half = magnitude > 0x7f800000u ? nan : half;
  return half | (sign >> 16);
}

// Exact: each f16 is an f32. A denormal is made normal by a subtraction of the bit that was put in
// front of it.
uint32_t Widen(uint32_t half) {
  const uint32_t shifted = (half & 0x7fff) << 13;
  const uint32_t exponent = shifted & (0x1fu << 23);
  const uint32_t normal = shifted + kRebase;
  const uint32_t special = normal + kRebase;
  const uint32_t denormal = AsBits(AsFloat(normal + (1u << 23)) - AsFloat(Exponent(-14)));
  uint32_t magnitude = exponent == 0x1fu << 23 ? special : normal;
  magnitude = exponent == 0 ? denormal : magnitude;
  return magnitude | (half & 0x8000) << 16;
}

// A carry out of the largest number is infinity.
uint32_t NarrowToBf16(uint32_t bits) {
  const uint32_t rounded = (bits + ((bits >> 16) & 1) + 0x7fff) >> 16;
  const bool is_nan = (bits & 0x7fffffffu) > 0x7f800000u;
  return is_nan ? (bits >> 16) | 0x40 : rounded;
}

uint32_t WidenBf16(uint32_t half) { return half << 16; }

template <typename In, typename Out, uint32_t (*kConvert)(uint32_t)>
void Loop(const void* in, void* out, uint64_t count) {
  // Through memcpy, as values in messages have any alignment; compilers make vector loads of it.
  const auto* __restrict from = static_cast<const char*>(in);
  auto* __restrict to = static_cast<char*>(out);
  for (uint64_t i = 0; i < count; ++i) {
    In one;
    std::memcpy(&one, from + i * sizeof(In), sizeof(In));
    const auto other = static_cast<Out>(kConvert(one));
    std::memcpy(to + i * sizeof(Out), &other, sizeof(Out));
  }
}

}  // namespace

void F32ToF16(const void* in, void* out, uint64_t count) {
  Loop<uint32_t, uint16_t, Narrow>(in, out, count);
}
void F32ToBf16(const void* in, void* out, uint64_t count) {
  Loop<uint32_t, uint16_t, NarrowToBf16>(in, out, count);
}
void F16ToF32(const void* in, void* out, uint64_t count) {
  Loop<uint16_t, uint32_t, Widen>(in, out, count);
}
void Bf16ToF32(const void* in, void* out, uint64_t count) {
  Loop<uint16_t, uint32_t, WidenBf16>(in, out, count);
}

}  // namespace phalanx::ps::internal
