// The element types of reductions, the ops on them, and their names. Public. (src/common/elements.h
// is private: it adds the types of all elements of one object.)
//
// All types are little-endian. f16, f32 and f64 are binary16, binary32 and binary64 of IEEE
// 754-2019; bf16 is bfloat16, the upper half of a binary32. Integers are two's complement and wrap.
// Values and functions; any thread.
#ifndef PHALANX_ELEMENTS_H_
#define PHALANX_ELEMENTS_H_

#include <array>
#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace phalanx {

// The numbers appear on the wire.
enum class DType { kF16, kBf16, kF32, kF64, kI8, kU8, kI16, kI32, kU32, kI64, kU64 };

inline constexpr std::array<DType, 11> kAllDTypes = {
    DType::kF16, DType::kBf16, DType::kF32, DType::kF64, DType::kI8, DType::kU8,
    DType::kI16, DType::kI32,  DType::kU32, DType::kI64, DType::kU64};

// kMin and kMax propagate a NaN. kMean is a sum that the root divides once by the number of folded
// sources. The numbers appear on the wire. Every op maps zeros to a zero, so that the padding
// between runs of elements (kElementRunAlignment) stays zero when it is folded.
enum class ReduceOp { kSum, kProd, kMin, kMax, kBitAnd, kBitOr, kBitXor, kMean };

inline constexpr std::array<ReduceOp, 8> kAllReduceOps = {
    ReduceOp::kSum,    ReduceOp::kProd,  ReduceOp::kMin,    ReduceOp::kMax,
    ReduceOp::kBitAnd, ReduceOp::kBitOr, ReduceOp::kBitXor, ReduceOp::kMean};

// Returns "f16", "bf16", "f32", "f64", "i8", "u8", "i16", "i32", "u32", "i64" or "u64", or
// "unknown" if `dtype` is no enumerator.
absl::string_view DTypeName(DType dtype);

// Returns "sum", "prod", "min", "max", "bit-and", "bit-or", "bit-xor" or "mean", or "unknown" if
// `op` is no enumerator.
absl::string_view ReduceOpName(ReduceOp op);

// Returns the type or op with exactly this name. Returns InvalidArgument that lists the valid names
// otherwise.
absl::StatusOr<DType> ParseDType(absl::string_view name);
absl::StatusOr<ReduceOp> ParseReduceOp(absl::string_view name);

// Returns 1, 2, 4 or 8 bytes. REQUIRES: `dtype` is one of kAllDTypes.
uint64_t ElementSize(DType dtype);

// Returns true for f16, bf16, f32 and f64.
bool IsFloat(DType dtype);

// Returns OK if `op` can reduce elements of this type: bit ops need integers, a mean needs floats,
// the other ops accept all types. Returns InvalidArgument naming both otherwise, also if one of
// them is no enumerator.
absl::Status CheckReducible(DType dtype, ReduceOp op);

// A run of elements of one type, in an object with elements of several types. The run begins at the
// end of the previous run (the first: at the beginning of the object) and extends to `end`, in
// bytes.
struct ElementRun {
  uint64_t end = 0;
  DType dtype = DType::kF32;
  friend bool operator==(const ElementRun&, const ElementRun&) = default;
};

// All runs except the last end at a multiple of this number of bytes. Padding between the last
// element of a run and its end is folded like elements: zeros stay zeros.
inline constexpr uint64_t kElementRunAlignment = 64;
inline constexpr size_t kMaxElementRuns = 64;

// Returns the number of elements in `bytes`. Returns InvalidArgument if `bytes` is no whole number
// of elements, or if `dtype` is no enumerator.
absl::StatusOr<uint64_t> CountElements(DType dtype, uint64_t bytes);

}  // namespace phalanx

#endif  // PHALANX_ELEMENTS_H_
