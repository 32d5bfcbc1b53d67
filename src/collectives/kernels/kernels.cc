#include "src/collectives/kernels/kernels.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "src/common/check.h"

namespace phalanx::collectives {
namespace {

bool SameOrDisjoint(const void* x, const void* y, uint64_t bytes) {
  const auto x_begin = reinterpret_cast<uintptr_t>(x);
  const auto y_begin = reinterpret_cast<uintptr_t>(y);
  return x_begin == y_begin || x_begin + bytes <= y_begin || y_begin + bytes <= x_begin;
}

// Sources of f16 are scaled by 2 to the power of minus this: the sum of `planned` of the largest
// numbers becomes less than half of the largest number. One source needs no room.
int ScaleExponent(uint64_t planned) {
  return planned == 1 ? 0 : static_cast<int>(std::bit_width(planned - 1)) + 1;
}

// The bits of 1, and of the two infinities of a float or the two ends of an integer's range. As
// bits, so that one table serves all types.
struct Landmarks {
  uint64_t one;
  uint64_t lowest;
  uint64_t highest;
};

Landmarks LandmarksOf(DType dtype) {
  const uint64_t bits = 8 * ElementSize(dtype);
  const uint64_t top = uint64_t{1} << (bits - 1);
  switch (dtype) {
    case DType::kF16:
      return {0x3c00, 0x7c00 | top, 0x7c00};
    case DType::kBf16:
      return {0x3f80, 0x7f80 | top, 0x7f80};
    case DType::kF32:
      return {0x3f800000, 0x7f800000 | top, 0x7f800000};
    case DType::kF64:
      return {0x3ff0000000000000, 0x7ff0000000000000 | top, 0x7ff0000000000000};
    case DType::kI8:
    case DType::kI16:
    case DType::kI32:
    case DType::kI64:
      return {1, top, top - 1};
    case DType::kU8:
    case DType::kU32:
    case DType::kU64:
      return {1, 0, top | (top - 1)};
  }
  return {};
}

uint64_t IdentityBits(DType dtype, ReduceOp op) {
  switch (op) {
    case ReduceOp::kSum:
    case ReduceOp::kMean:
      // -0 for floats: -0 + +0 is +0 and -0 + -0 is -0, but +0 + -0 would lose the sign.
      return IsFloat(dtype) ? uint64_t{1} << (8 * ElementSize(dtype) - 1) : 0;
    case ReduceOp::kProd:
      return LandmarksOf(dtype).one;
    case ReduceOp::kMin:
      return LandmarksOf(dtype).highest;
    case ReduceOp::kMax:
      return LandmarksOf(dtype).lowest;
    case ReduceOp::kBitAnd:
      return ~uint64_t{0};
    case ReduceOp::kBitOr:
    case ReduceOp::kBitXor:
      return 0;
  }
  return 0;
}

// Once for each call, not for each element: the loops rely on it.
void CheckArguments(DType dtype, ReduceOp op, bool overlap_allowed) {
  PHALANX_CHECK(CheckReducible(dtype, op).ok(), "dtype and op are checked where they come in");
  PHALANX_CHECK(overlap_allowed, "the result is in place of an operand, or apart from all of them");
}

}  // namespace

void Fold(DType dtype, ReduceOp op, void* dst, const void* a, const void* b, uint64_t count,
          const KernelTarget& target) {
  const uint64_t bytes = count * ElementSize(dtype);
  CheckArguments(dtype, op, SameOrDisjoint(dst, a, bytes) && SameOrDisjoint(dst, b, bytes));
  target.fold(dtype, op)(static_cast<uint8_t*>(dst), static_cast<const uint8_t*>(a),
                         static_cast<const uint8_t*>(b), bytes);
}

bool NeedsPrepare(DType dtype, ReduceOp op) {
  return dtype == DType::kF16 && op == ReduceOp::kMean;
}

bool NeedsPrepare(const ElementTypes& elements, ReduceOp op) {
  if (elements.runs.empty()) return NeedsPrepare(elements.dtype, op);
  // One run is enough: bytes that are handed on as they are cannot be prepared in part.
  return std::any_of(elements.runs.begin(), elements.runs.end(),
                     [op](const ElementRun& run) { return NeedsPrepare(run.dtype, op); });
}

void Prepare(DType dtype, ReduceOp op, void* dst, const void* src, uint64_t count, uint64_t planned,
             const KernelTarget& target) {
  const uint64_t bytes = count * ElementSize(dtype);
  CheckArguments(dtype, op, SameOrDisjoint(dst, src, bytes));
  PHALANX_CHECK(planned >= 1, "a reduction is planned for at least one source");
  if (NeedsPrepare(dtype, op)) {
    target.scale_f16(static_cast<uint8_t*>(dst), static_cast<const uint8_t*>(src), bytes,
                     std::ldexp(1.0f, -ScaleExponent(planned)));
  } else if (dst != src && bytes > 0) {
    // memcpy takes no null pointer, even for no bytes.
    std::memcpy(dst, src, bytes);
  }
}

void Finish(DType dtype, ReduceOp op, void* values, uint64_t count, uint64_t sources,
            uint64_t planned, const KernelTarget& target) {
  CheckArguments(dtype, op, true);
  PHALANX_CHECK(sources >= 1 && planned >= 1, "a result has at least one source");
  // Only means are scaled and divided; the fold of another op is its result.
  if (op != ReduceOp::kMean) return;
  const uint64_t bytes = count * ElementSize(dtype);
  auto* const first = static_cast<uint8_t*>(values);
  if (dtype == DType::kF16) {
    // In one step in f32: scaled up in f16, the sum could overflow although the mean does not.
    target.finish_f16(first, bytes, std::ldexp(1.0f, ScaleExponent(planned)), sources);
  } else {
    target.divide(dtype, first, bytes, sources);
  }
}

void FillIdentity(DType dtype, ReduceOp op, void* dst, uint64_t count) {
  CheckArguments(dtype, op, true);
  const uint64_t size = ElementSize(dtype);
  const uint64_t bits = IdentityBits(dtype, op);
  auto* const first = static_cast<uint8_t*>(dst);
  // The low bytes of `bits` are the element: all supported machines are little-endian.
  for (uint64_t i = 0; i < count; ++i) std::memcpy(first + i * size, &bits, size);
}

}  // namespace phalanx::collectives
