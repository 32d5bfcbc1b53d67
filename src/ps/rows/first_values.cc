#include "src/ps/rows/first_values.h"

#include <cmath>
#include <cstring>

#include "src/common/random.h"
#include "src/ps/split.h"

namespace phalanx::ps::internal {
namespace {

// The natural logarithm of x > 0, normal, by arithmetic that is the same everywhere. That of the C
// library has other last bits on processors with other instructions. Off by less than 1e-15.
double Log(double x) {
  constexpr double kLog2 = 0.693147180559945309417;
  constexpr double kRootOfHalf = 0.707106781186547524401;
  int exponent;
  double m = std::frexp(x, &exponent);
  if (m < kRootOfHalf) {
    m *= 2;
    --exponent;
  }
  // log m = 2 artanh((m - 1) / (m + 1)), and the square of that is below 0.0295.
  const double t = (m - 1) / (m + 1);
  const double square = t * t;
  double series = 0;
  // Up to t^23: the first term that is left out is below 0.0295^12 / 25, which is 2e-20.
  for (int k = 23; k >= 1; k -= 2) series = series * square + 1.0 / k;
  return exponent * kLog2 + 2 * t * series;
}

template <typename T>
void Put(void* out, uint32_t index, T value) {
  std::memcpy(static_cast<char*>(out) + index * sizeof(T), &value, sizeof(T));
}

// In steps that the type has, so that no number is rounded up to `scale`.
template <typename T>
void Uniform(const TableSpec& spec, Random& random, void* out) {
  constexpr int kBits = sizeof(T) == 4 ? 24 : 53;
  const T step = std::ldexp(T{1}, 1 - kBits);
  for (uint32_t i = 0; i < spec.width; ++i) {
    const T unit = static_cast<T>(random.Next() >> (64 - kBits)) * step - T{1};
    Put(out, i, unit * static_cast<T>(spec.scale));
  }
}

// The polar method (Marsaglia and Bray, "A convenient method for generating normal variables", SIAM
// Review 1964): a point in the unit disk gives two numbers. Computed in f64 for both types, so the
// values of an f32 table are those of an f64 one, rounded.
template <typename T>
void Normal(const TableSpec& spec, Random& random, void* out) {
  for (uint32_t i = 0; i < spec.width; i += 2) {
    double x, y, square;
    do {
      x = 2 * random.Unit() - 1;
      y = 2 * random.Unit() - 1;
      square = x * x + y * y;
    } while (square >= 1 || square == 0);
    const double factor = spec.scale * std::sqrt(-2 * Log(square) / square);
    Put(out, i, static_cast<T>(x * factor));
    if (i + 1 < spec.width) Put(out, i + 1, static_cast<T>(y * factor));
  }
}

}  // namespace

void FirstValues(const TableSpec& spec, Key key, void* out) {
  const bool is_f32 = spec.dtype == DType::kF32;
  if (spec.init == Init::kZeros) {
    std::memset(out, 0, spec.width * ElementSize(spec.dtype));
    return;
  }
  // Mixed twice: neighbours of a key, and of a seed, begin far from each other.
  Random random(MixKey(MixKey(spec.seed) ^ key));
  if (spec.init == Init::kUniform) {
    is_f32 ? Uniform<float>(spec, random, out) : Uniform<double>(spec, random, out);
  } else {
    is_f32 ? Normal<float>(spec, random, out) : Normal<double>(spec, random, out);
  }
}

}  // namespace phalanx::ps::internal
