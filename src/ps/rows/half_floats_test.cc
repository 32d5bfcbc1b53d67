// Every f16 and bf16, and every number halfway between two of them.
#include "src/ps/rows/half_floats.h"

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <vector>

#include "gtest/gtest.h"

namespace phalanx::ps::internal {
namespace {

using Convert = void (*)(const void*, void*, uint64_t);

struct Format {
  const char* name;
  Convert narrow, widen;
  int exponent_bits, mantissa_bits, bias;

  uint32_t quiet() const { return 1u << (mantissa_bits - 1); }
  uint32_t infinity() const { return ((1u << exponent_bits) - 1) << mantissa_bits; }
};

constexpr Format kFormats[] = {{"f16", F32ToF16, F16ToF32, 5, 10, 15},
                               {"bf16", F32ToBf16, Bf16ToF32, 8, 7, 127}};

// By the definition of a binary format.
double ValueOf(const Format& format, uint32_t bits) {
  const int exponent =
      static_cast<int>(bits >> format.mantissa_bits) & ((1 << format.exponent_bits) - 1);
  const uint32_t mantissa = bits & ((1u << format.mantissa_bits) - 1);
  const uint32_t hidden = exponent == 0 ? 0 : 1u << format.mantissa_bits;
  const double magnitude = std::ldexp(static_cast<double>(mantissa + hidden),
                                      std::max(exponent, 1) - format.bias - format.mantissa_bits);
  return bits & 0x8000 ? -magnitude : magnitude;
}

uint16_t Narrow(const Format& format, float value) {
  uint16_t half;
  format.narrow(&value, &half, 1);
  return half;
}

float Widen(const Format& format, uint16_t half) {
  float value;
  format.widen(&half, &value, 1);
  return value;
}

TEST(HalfFloats, EveryNumberWidensExactlyAndComesBack) {
  for (const Format& format : kFormats) {
    SCOPED_TRACE(format.name);
    std::vector<uint16_t> halves(65536);
    for (uint32_t bits = 0; bits < 65536; ++bits) halves[bits] = static_cast<uint16_t>(bits);
    std::vector<float> wide(65536);
    std::vector<uint16_t> back(65536);
    format.widen(halves.data(), wide.data(), halves.size());
    format.narrow(wide.data(), back.data(), wide.size());
    for (uint32_t bits = 0; bits < 65536; ++bits) {
      const uint32_t magnitude = bits & 0x7fff;
      if (magnitude > format.infinity()) {
        ASSERT_TRUE(std::isnan(wide[bits])) << bits;
        ASSERT_EQ(back[bits], bits | format.quiet());
        continue;
      }
      ASSERT_EQ(back[bits], bits);
      ASSERT_EQ(std::signbit(wide[bits]), (bits & 0x8000) != 0);
      if (magnitude == format.infinity()) {
        ASSERT_TRUE(std::isinf(wide[bits]));
      } else {
        ASSERT_EQ(wide[bits], ValueOf(format, bits));
      }
    }
  }
}

TEST(HalfFloats, RoundsToNearestAndTiesToEven) {
  for (const Format& format : kFormats) {
    SCOPED_TRACE(format.name);
    for (uint32_t bits = 0; bits < format.infinity(); ++bits) {
      // Between the largest number and infinity lies what the next number would be.
      const double low = ValueOf(format, bits);
      const double step = ValueOf(format, bits + 1) - low;
      const float middle = static_cast<float>(low + step / 2);
      ASSERT_EQ(static_cast<double>(middle), low + step / 2);
      const float most = std::numeric_limits<float>::max();
      const uint32_t even = bits + (bits & 1);
      for (const uint32_t sign : {0u, 0x8000u}) {
        const float factor = sign ? -1.0f : 1.0f;
        ASSERT_EQ(Narrow(format, factor * middle), even | sign) << bits;
        ASSERT_EQ(Narrow(format, factor * std::nextafter(middle, 0.0f)), bits | sign) << bits;
        ASSERT_EQ(Narrow(format, factor * std::nextafter(middle, most)), (bits + 1) | sign) << bits;
      }
    }
  }
}

TEST(HalfFloats, LimitsByHand) {
  EXPECT_EQ(Narrow(kFormats[0], 65504.0f), 0x7bff);
  EXPECT_EQ(Narrow(kFormats[0], 65519.99f), 0x7bff);
  EXPECT_EQ(Narrow(kFormats[0], 65520.0f), 0x7c00);
  EXPECT_EQ(Narrow(kFormats[0], 1e30f), 0x7c00);
  EXPECT_EQ(Narrow(kFormats[0], 0x1p-25f), 0);
  EXPECT_EQ(Narrow(kFormats[0], std::numeric_limits<float>::denorm_min()), 0);
  EXPECT_EQ(Narrow(kFormats[0], -0.0f), 0x8000);
  EXPECT_EQ(Widen(kFormats[0], 1), 0x1p-24f);
  EXPECT_EQ(Narrow(kFormats[1], std::numeric_limits<float>::max()), 0x7f80);
  EXPECT_EQ(Narrow(kFormats[1], 1.0f), 0x3f80);
  // A NaN whose payload is in the lower half only must not become infinity, nor one with all bits
  // set a zero.
  EXPECT_EQ(Narrow(kFormats[1], std::bit_cast<float>(0x7f800001u)), 0x7fc0);
  EXPECT_EQ(Narrow(kFormats[1], std::bit_cast<float>(0xffffffffu)), 0xffff);
  EXPECT_EQ(Narrow(kFormats[0], std::bit_cast<float>(0x7f800001u)), 0x7e00);
}

TEST(HalfFloats, AnyAlignmentAndCount) {
  for (const Format& format : kFormats) {
    for (size_t count = 0; count < 40; ++count) {
      std::vector<char> in(4 * count + 1), out(2 * count + 3, 'x'), back(4 * count + 1);
      for (size_t i = 0; i < count; ++i) {
        const float value = static_cast<float>(i) - 7.5f;
        std::memcpy(in.data() + 1 + 4 * i, &value, 4);
      }
      format.narrow(in.data() + 1, out.data() + 1, count);
      EXPECT_EQ(out.front(), 'x');
      EXPECT_EQ(out[2 * count + 1], 'x');
      format.widen(out.data() + 1, back.data() + 1, count);
      EXPECT_EQ(std::memcmp(in.data() + 1, back.data() + 1, 4 * count), 0);
    }
  }
}

}  // namespace
}  // namespace phalanx::ps::internal
