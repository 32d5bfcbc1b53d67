#include "src/collectives/kernels/kernel_reference.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "absl/strings/string_view.h"
#include "src/common/check.h"

namespace phalanx::collectives {
namespace {

// A binary floating-point format of IEEE 754: sign, exponent, fraction.
struct Format {
  int exponent_bits;
  int fraction_bits;

  int Bias() const { return (1 << (exponent_bits - 1)) - 1; }
  Bits Sign() const { return Bits{1} << (exponent_bits + fraction_bits); }
  Bits Infinity() const { return ((Bits{1} << exponent_bits) - 1) << fraction_bits; }
  Bits QuietNaN() const { return Infinity() | Bits{1} << (fraction_bits - 1); }
};

Format FormatOf(DType dtype) {
  if (dtype == DType::kF16) return {5, 10};
  if (dtype == DType::kBf16) return {8, 7};
  if (dtype == DType::kF32) return {8, 23};
  return {11, 52};
}

bool IsSigned(DType dtype) {
  return dtype == DType::kI8 || dtype == DType::kI16 || dtype == DType::kI32 ||
         dtype == DType::kI64;
}

// Modulo 2^bits, as integers wrap.
Bits Truncate(DType dtype, Bits bits) {
  const uint64_t size = ElementSize(dtype);
  return size == 8 ? bits : bits & ((Bits{1} << (8 * size)) - 1);
}

__int128 IntegerOf(DType dtype, Bits bits) {
  const uint64_t width = 8 * ElementSize(dtype);
  const bool negative = IsSigned(dtype) && (bits >> (width - 1)) != 0;
  return static_cast<__int128>(bits) - (negative ? static_cast<__int128>(1) << width : 0);
}

constexpr absl::string_view kRefused = "CheckReducible refuses this op for these elements";

Bits FoldIntegers(DType dtype, ReduceOp op, Bits a, Bits b) {
  const __int128 x = IntegerOf(dtype, a);
  const __int128 y = IntegerOf(dtype, b);
  switch (op) {
    case ReduceOp::kSum:
      return Truncate(dtype, static_cast<Bits>(x + y));
    case ReduceOp::kProd:
      // The product of two signed numbers ends like that of their bits.
      return Truncate(dtype, static_cast<Bits>(static_cast<unsigned __int128>(a) * b));
    case ReduceOp::kMin:
      return x < y ? a : b;
    case ReduceOp::kMax:
      return x > y ? a : b;
    case ReduceOp::kBitAnd:
      return a & b;
    case ReduceOp::kBitOr:
      return a | b;
    case ReduceOp::kBitXor:
      return a ^ b;
    case ReduceOp::kMean:
      break;
  }
  PHALANX_CHECK(false, kRefused);
  return 0;
}

// REQUIRES: kMin or kMax.
double Extreme(ReduceOp op, double x, double y) {
  if (std::isnan(x) || std::isnan(y)) return std::numeric_limits<double>::quiet_NaN();
  // -0 is less than +0, although they compare equal.
  const bool x_is_less = x < y || (x == y && std::signbit(x));
  return (op == ReduceOp::kMin) == x_is_less ? x : y;
}

template <typename Float>
double FoldFloats(ReduceOp op, double x, double y) {
  // volatile: the compiler rounds to Float here, and contracts nothing.
  const volatile Float a = static_cast<Float>(x);
  const volatile Float b = static_cast<Float>(y);
  switch (op) {
    case ReduceOp::kSum:
    case ReduceOp::kMean:
      return a + b;
    case ReduceOp::kProd:
      return a * b;
    case ReduceOp::kMin:
    case ReduceOp::kMax:
      return Extreme(op, x, y);
    case ReduceOp::kBitAnd:
    case ReduceOp::kBitOr:
    case ReduceOp::kBitXor:
      break;
  }
  PHALANX_CHECK(false, kRefused);
  return 0;
}

}  // namespace

double ValueOf(DType dtype, Bits bits) {
  const Format format = FormatOf(dtype);
  const double sign = (bits & format.Sign()) != 0 ? -1.0 : 1.0;
  const Bits magnitude = bits & ~format.Sign();
  if (magnitude > format.Infinity()) return std::numeric_limits<double>::quiet_NaN();
  if (magnitude == format.Infinity()) return sign * std::numeric_limits<double>::infinity();
  const int field = static_cast<int>(magnitude >> format.fraction_bits);
  const Bits fraction = magnitude & ((Bits{1} << format.fraction_bits) - 1);
  // Denormals have no hidden bit, and the exponent of the smallest normal number.
  const Bits hidden = field > 0 ? Bits{1} << format.fraction_bits : 0;
  const int exponent = std::max(field, 1) - format.Bias() - format.fraction_bits;
  return sign * std::ldexp(static_cast<double>(hidden + fraction), exponent);
}

Bits NearestTo(DType dtype, double value) {
  const Format format = FormatOf(dtype);
  if (std::isnan(value)) return format.QuietNaN();
  const Bits sign = std::signbit(value) ? format.Sign() : 0;
  const double magnitude = std::fabs(value);
  if (magnitude == 0) return sign;
  if (std::isinf(magnitude)) return sign | format.Infinity();
  const int exponent = std::max(std::ilogb(magnitude), 1 - format.Bias());
  // In units of the last place; nearbyint rounds ties to even.
  const double units = std::nearbyint(std::ldexp(magnitude, format.fraction_bits - exponent));
  // Units that carry into the next binade carry into the exponent's field, up to infinity.
  const Bits before = static_cast<Bits>(exponent + format.Bias() - 1) << format.fraction_bits;
  return sign | std::min(before + static_cast<Bits>(units), format.Infinity());
}

Bits FoldReference(DType dtype, ReduceOp op, Bits a, Bits b) {
  if (!IsFloat(dtype)) return FoldIntegers(dtype, op, a, b);
  const double x = ValueOf(dtype, a);
  const double y = ValueOf(dtype, b);
  // A double holds the product of two f32 exactly, but f16 and bf16 are folded in f32 by contract.
  const double folded =
      dtype == DType::kF64 ? FoldFloats<double>(op, x, y) : FoldFloats<float>(op, x, y);
  return NearestTo(dtype, folded);
}

std::vector<Bits> SpecialBits(DType dtype) {
  std::vector<Bits> found = {0, 1, 2, 3};
  if (IsFloat(dtype)) {
    const Format format = FormatOf(dtype);
    const Bits smallest_normal = Bits{1} << format.fraction_bits;
    const Bits one = static_cast<Bits>(format.Bias()) << format.fraction_bits;
    const Bits half_way = one + (Bits{1} << (format.fraction_bits / 2));
    for (const Bits magnitude :
         {smallest_normal - 1, smallest_normal, smallest_normal + 1, one - 1, one, one + 1,
          half_way, one + smallest_normal, format.Infinity() - 2, format.Infinity() - 1,
          format.Infinity(), format.Infinity() + 1, format.QuietNaN(), format.QuietNaN() + 5}) {
      found.push_back(magnitude);
    }
    const size_t positive = found.size();
    for (size_t i = 0; i < positive; ++i) found.push_back(found[i] | format.Sign());
    return found;
  }
  const Bits top = Bits{1} << (8 * ElementSize(dtype) - 1);
  for (const Bits bits :
       {top - 1, top, top + 1, ~Bits{0}, ~Bits{0} - 1, Bits{0x5555555555555555}}) {
    found.push_back(Truncate(dtype, bits));
  }
  return found;
}

std::vector<uint8_t> BytesOf(DType dtype, const std::vector<Bits>& elements) {
  const uint64_t size = ElementSize(dtype);
  std::vector<uint8_t> bytes(elements.size() * size);
  for (size_t i = 0; i < elements.size(); ++i) {
    std::memcpy(&bytes[i * size], &elements[i], size);
  }
  return bytes;
}

std::vector<Bits> ElementsOf(DType dtype, const std::vector<uint8_t>& bytes) {
  const uint64_t size = ElementSize(dtype);
  std::vector<Bits> elements(bytes.size() / size);
  for (size_t i = 0; i < elements.size(); ++i) {
    std::memcpy(&elements[i], &bytes[i * size], size);
  }
  return elements;
}

}  // namespace phalanx::collectives
