// What a reduction folds and how: the types of elements, the ops over them, and their names.
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

// The numbers are those of the wire.
enum class DType { kF16, kBf16, kF32, kF64, kI8, kU8, kI16, kI32, kU32, kI64, kU64 };

inline constexpr std::array<DType, 11> kAllDTypes = {
    DType::kF16, DType::kBf16, DType::kF32, DType::kF64, DType::kI8, DType::kU8,
    DType::kI16, DType::kI32,  DType::kU32, DType::kI64, DType::kU64};

// kMin and kMax hand a NaN on. kMean is a sum that is divided once, at the root, by how many
// sources went in. The numbers are those of the wire.
enum class ReduceOp { kSum, kProd, kMin, kMax, kBitAnd, kBitOr, kBitXor, kMean };

inline constexpr std::array<ReduceOp, 8> kAllReduceOps = {
    ReduceOp::kSum,    ReduceOp::kProd,  ReduceOp::kMin,    ReduceOp::kMax,
    ReduceOp::kBitAnd, ReduceOp::kBitOr, ReduceOp::kBitXor, ReduceOp::kMean};

// "f16", "bf16", "f32", "f64", "i8", "u8", "i16", "i32", "u32", "i64", "u64". A number that was
// cast and is no DType is "unknown".
absl::string_view DTypeName(DType dtype);

// "sum", "prod", "min", "max", "bit-and", "bit-or", "bit-xor", "mean"; "unknown" as above.
absl::string_view ReduceOpName(ReduceOp op);

// The type or op of that very name. InvalidArgument naming `name` and what there is.
absl::StatusOr<DType> ParseDType(absl::string_view name);
absl::StatusOr<ReduceOp> ParseReduceOp(absl::string_view name);

// 1, 2, 4 or 8 bytes. REQUIRES: one of kAllDTypes.
uint64_t ElementSize(DType dtype);

// f16, bf16, f32 and f64.
bool IsFloat(DType dtype);

// Whether elements of that type can be reduced by that op: bits of integers, means of floats, the
// others of all. InvalidArgument naming both, also when either is a number cast that is none.
absl::Status CheckReducible(DType dtype, ReduceOp op);

// Of an object whose elements are of several types: those of one type, from the end of the run
// before (the first: from the object's begin) up to `end`, in bytes.
struct ElementRun {
  uint64_t end = 0;
  DType dtype = DType::kF32;
  friend bool operator==(const ElementRun&, const ElementRun&) = default;
};

// All runs but the last end at a multiple of so many bytes. What is between a run's last element
// and its end is folded as if it were elements: zeros stay zeros.
inline constexpr uint64_t kElementRunAlignment = 64;
inline constexpr size_t kMaxElementRuns = 64;

// How many elements `bytes` are. InvalidArgument if they are no whole number of them, or the type
// is a number cast that is none.
absl::StatusOr<uint64_t> CountElements(DType dtype, uint64_t bytes);

}  // namespace phalanx

#endif  // PHALANX_ELEMENTS_H_
