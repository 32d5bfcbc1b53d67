#include "src/cli/bench/element_pattern.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>

namespace phalanx::runtime::bench {
namespace {

// A prime, so that shifts by a power of two never match.
constexpr uint64_t kPeriod = 1021;

// A small integer: where sums must be exact, a sum of kMaxExactRanks of them is.
int64_t Value(const Elements& elements, uint64_t seed, int rank, uint64_t index) {
  const int64_t i = static_cast<int64_t>((index + seed) % kPeriod);
  switch (elements.op) {
    case ReduceOp::kSum:
    case ReduceOp::kMean:
      // A bfloat16 has 8 significant bits and a binary16 11: larger sums would be rounded.
      if (elements.dtype == DType::kBf16) return i % 4 + rank % 3;
      return (elements.dtype == DType::kF16 ? i % 32 : i) + rank % 3;
    case ReduceOp::kProd:
      // Mostly ones, so that a product over many ranks stays small.
      return (i + rank) % 8 == 0 ? 2 : 1;
    case ReduceOp::kMin:
    case ReduceOp::kMax:
    case ReduceOp::kBitAnd:
    case ReduceOp::kBitOr:
    case ReduceOp::kBitXor:
      return (i * 31 + rank * 17) % 101;
  }
  return 0;
}

// In 64-bit integers, where every fold of small values is exact.
int64_t Fold(ReduceOp op, int64_t a, int64_t b) {
  switch (op) {
    case ReduceOp::kSum:
    case ReduceOp::kMean:
      return a + b;
    case ReduceOp::kProd:
      return a * b;
    case ReduceOp::kMin:
      return std::min(a, b);
    case ReduceOp::kMax:
      return std::max(a, b);
    case ReduceOp::kBitAnd:
      return a & b;
    case ReduceOp::kBitOr:
      return a | b;
    case ReduceOp::kBitXor:
      return a ^ b;
  }
  return 0;
}

uint32_t FloatBits(double value) {
  const float narrow = static_cast<float>(value);
  uint32_t bits = 0;
  std::memcpy(&bits, &narrow, sizeof bits);
  return bits;
}

// Converts by dropping bits of a binary32. Valid for 0 and normal values that a binary16 can
// represent.
uint16_t HalfBits(double value) {
  const uint32_t bits = FloatBits(value);
  if (value == 0) return 0;
  const uint32_t exponent = ((bits >> 23) & 0xff) - 127 + 15;
  return static_cast<uint16_t>((bits >> 31 << 15) | (exponent << 10) | ((bits >> 13) & 0x3ff));
}

double FromHalfBits(uint16_t bits) {
  const int exponent = (bits >> 10) & 0x1f;
  const double fraction = bits & 0x3ff;
  const double size =
      exponent == 0 ? std::ldexp(fraction, -24) : std::ldexp(1024 + fraction, exponent - 25);
  return (bits >> 15) != 0 ? -size : size;
}

template <typename T>
void Append(std::string& out, T value) {
  out.append(reinterpret_cast<const char*>(&value), sizeof value);
}

// Appends the element with that value, which the dtype can represent, exactly or modulo its width.
void AppendElement(DType dtype, int64_t value, std::string& out) {
  switch (dtype) {
    case DType::kF16:
      return Append(out, HalfBits(static_cast<double>(value)));
    case DType::kBf16:
      return Append(out, static_cast<uint16_t>(FloatBits(static_cast<double>(value)) >> 16));
    case DType::kF32:
      return Append(out, static_cast<float>(value));
    case DType::kF64:
      return Append(out, static_cast<double>(value));
    case DType::kI8:
    case DType::kU8:
      return Append(out, static_cast<uint8_t>(value));
    case DType::kI16:
      return Append(out, static_cast<uint16_t>(value));
    case DType::kI32:
    case DType::kU32:
      return Append(out, static_cast<uint32_t>(value));
    case DType::kI64:
    case DType::kU64:
      return Append(out, static_cast<uint64_t>(value));
  }
}

template <typename T>
T Load(const char* at) {
  T value;
  std::memcpy(&value, at, sizeof value);
  return value;
}

// A double represents every value of the narrower types exactly.
double FloatAt(DType dtype, const char* at) {
  if (dtype == DType::kF16) return FromHalfBits(Load<uint16_t>(at));
  if (dtype == DType::kF32) return Load<float>(at);
  if (dtype == DType::kF64) return Load<double>(at);
  const uint32_t bits = static_cast<uint32_t>(Load<uint16_t>(at)) << 16;
  return Load<float>(reinterpret_cast<const char*>(&bits));
}

// A few units in the last place, for the sum of scaled sources and for the division.
double Tolerance(DType dtype, size_t ranks) {
  const double places = dtype == DType::kF16 ? 0x1p-10 : dtype == DType::kBf16 ? 0x1p-7 : 0x1p-22;
  return places * static_cast<double>(ranks);
}

int64_t Expected(const Elements& elements, uint64_t seed, const std::vector<int>& ranks,
                 uint64_t index) {
  int64_t folded = Value(elements, seed, ranks[0], index);
  for (size_t i = 1; i < ranks.size(); ++i) {
    folded = Fold(elements.op, folded, Value(elements, seed, ranks[i], index));
  }
  return folded;
}

bool MatchesMean(const Elements& elements, uint64_t seed, const std::vector<int>& ranks,
                 uint64_t first, absl::string_view bytes) {
  const uint64_t size = ElementSize(elements.dtype);
  const double tolerance = Tolerance(elements.dtype, ranks.size());
  for (uint64_t i = 0; i < bytes.size() / size; ++i) {
    const double sum = static_cast<double>(Expected(elements, seed, ranks, first + i));
    const double mean = sum / static_cast<double>(ranks.size());
    const double found = FloatAt(elements.dtype, bytes.data() + i * size);
    // The negation also rejects NaN.
    if (!(std::abs(found - mean) <= tolerance * std::max(1.0, mean))) return false;
  }
  return true;
}

}  // namespace

void FillElements(const Elements& elements, uint64_t seed, int rank, absl::Span<char> out) {
  // The pattern repeats, so it is computed once and copied.
  std::string period;
  const uint64_t distinct = std::min(kPeriod, out.size() / ElementSize(elements.dtype));
  for (uint64_t i = 0; i < distinct; ++i) {
    AppendElement(elements.dtype, Value(elements, seed, rank, i), period);
  }
  for (size_t at = 0; at < out.size(); at += period.size()) {
    std::memcpy(out.data() + at, period.data(), std::min(period.size(), out.size() - at));
  }
}

bool MatchesReduction(const Elements& elements, uint64_t seed, const std::vector<int>& ranks,
                      uint64_t first, absl::string_view bytes) {
  // An empty list of ranks would accept any bytes.
  if (ranks.empty() || bytes.size() % ElementSize(elements.dtype) != 0) return false;
  if (elements.op == ReduceOp::kMean) return MatchesMean(elements, seed, ranks, first, bytes);
  // All sources have the same period, so the result has it too.
  std::string period;
  const uint64_t distinct = std::min(kPeriod, bytes.size() / ElementSize(elements.dtype));
  for (uint64_t i = 0; i < distinct; ++i) {
    AppendElement(elements.dtype, Expected(elements, seed, ranks, first + i), period);
  }
  for (size_t at = 0; at < bytes.size(); at += period.size()) {
    const size_t length = std::min(period.size(), bytes.size() - at);
    if (std::memcmp(bytes.data() + at, period.data(), length) != 0) return false;
  }
  return true;
}

}  // namespace phalanx::runtime::bench
