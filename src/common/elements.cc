#include "src/common/elements.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "src/common/check.h"
#include "src/common/status_macros.h"

namespace phalanx {
namespace {

template <typename Values, typename Value>
bool Contains(const Values& values, Value value) {
  return std::find(values.begin(), values.end(), value) != values.end();
}

// Returns the value of `values` whose name is `name`. `what` appears in the error.
template <typename Values, typename Namer>
auto Parse(absl::string_view what, absl::string_view name, const Values& values, Namer name_of)
    -> absl::StatusOr<typename Values::value_type> {
  for (const auto value : values) {
    if (name_of(value) == name) return value;
  }
  const std::string all = absl::StrJoin(
      values, ", ", [&](std::string* out, auto value) { absl::StrAppend(out, name_of(value)); });
  return absl::InvalidArgumentError(
      absl::StrCat("\"", name, "\" is not a valid ", what, "; use ", all));
}

bool IsBitOp(ReduceOp op) {
  return op == ReduceOp::kBitAnd || op == ReduceOp::kBitOr || op == ReduceOp::kBitXor;
}

}  // namespace

// The names are an interface: the command line and the Python package parse them.
absl::string_view DTypeName(DType dtype) {
  switch (dtype) {
    case DType::kF16:
      return "f16";
    case DType::kBf16:
      return "bf16";
    case DType::kF32:
      return "f32";
    case DType::kF64:
      return "f64";
    case DType::kI8:
      return "i8";
    case DType::kU8:
      return "u8";
    case DType::kI16:
      return "i16";
    case DType::kI32:
      return "i32";
    case DType::kU32:
      return "u32";
    case DType::kI64:
      return "i64";
    case DType::kU64:
      return "u64";
  }
  // An error of CheckReducible can name a number that is no dtype.
  return "unknown";
}

absl::string_view ReduceOpName(ReduceOp op) {
  switch (op) {
    case ReduceOp::kSum:
      return "sum";
    case ReduceOp::kProd:
      return "prod";
    case ReduceOp::kMin:
      return "min";
    case ReduceOp::kMax:
      return "max";
    case ReduceOp::kBitAnd:
      return "bit-and";
    case ReduceOp::kBitOr:
      return "bit-or";
    case ReduceOp::kBitXor:
      return "bit-xor";
    case ReduceOp::kMean:
      return "mean";
  }
  return "unknown";
}

absl::StatusOr<DType> ParseDType(absl::string_view name) {
  return Parse("dtype", name, kAllDTypes, DTypeName);
}

absl::StatusOr<ReduceOp> ParseReduceOp(absl::string_view name) {
  return Parse("op", name, kAllReduceOps, ReduceOpName);
}

uint64_t ElementSize(DType dtype) {
  switch (dtype) {
    case DType::kI8:
    case DType::kU8:
      return 1;
    case DType::kF16:
    case DType::kBf16:
    case DType::kI16:
      return 2;
    case DType::kF32:
    case DType::kI32:
    case DType::kU32:
      return 4;
    case DType::kF64:
    case DType::kI64:
    case DType::kU64:
      return 8;
  }
  PHALANX_CHECK(false, "CheckReducible has accepted the dtype");
  return 0;
}

bool IsFloat(DType dtype) {
  return dtype == DType::kF16 || dtype == DType::kBf16 || dtype == DType::kF32 ||
         dtype == DType::kF64;
}

absl::Status CheckReducible(DType dtype, ReduceOp op) {
  // The numbers can come from a message: a value outside of the enum is an error, not a broken
  // invariant.
  const bool known = Contains(kAllDTypes, dtype) && Contains(kAllReduceOps, op);
  const bool fits = IsFloat(dtype) ? !IsBitOp(op) : op != ReduceOp::kMean;
  if (known && fits) return absl::OkStatus();
  const absl::string_view why = !known           ? "unknown op or dtype"
                                : IsFloat(dtype) ? "bit ops need integers"
                                                 : "a mean needs floats";
  return absl::InvalidArgumentError(
      absl::StrCat("no ", ReduceOpName(op), " of ", DTypeName(dtype), ": ", why));
}

absl::StatusOr<uint64_t> CountElements(DType dtype, uint64_t bytes) {
  // Every type has a minimum, so only an unknown dtype fails here.
  if (const absl::Status known = CheckReducible(dtype, ReduceOp::kMin); !known.ok()) return known;
  const uint64_t size = ElementSize(dtype);
  if (bytes % size == 0) return bytes / size;
  return absl::InvalidArgumentError(absl::StrCat(bytes, " bytes are not a whole number of ",
                                                 DTypeName(dtype), " elements of ", size,
                                                 " bytes"));
}

ElementTypes::ElementTypes(DType dtype, std::vector<ElementRun> runs)
    : dtype(runs.empty() ? dtype : DType::kF32), runs(std::move(runs)) {}

uint64_t ElementTypes::Grain() const {
  return runs.empty() ? ElementSize(dtype) : kElementRunAlignment;
}

std::string ElementTypes::Name() const {
  if (runs.empty()) return std::string(DTypeName(dtype));
  return absl::StrCat("runs of ",
                      absl::StrJoin(runs, ", ", [](std::string* out, const ElementRun& run) {
                        absl::StrAppend(out, DTypeName(run.dtype));
                      }));
}

absl::Status CheckReducible(const ElementTypes& elements, ReduceOp op) {
  const std::vector<ElementRun>& runs = elements.runs;
  if (runs.empty()) return CheckReducible(elements.dtype, op);
  if (runs.size() > kMaxElementRuns) {
    return absl::InvalidArgumentError(
        absl::StrCat(runs.size(), " runs of elements, more than the limit of ", kMaxElementRuns));
  }
  uint64_t begin = 0;
  for (const ElementRun& run : runs) {
    PHALANX_RETURN_IF_ERROR(CheckReducible(run.dtype, op));
    // The last run ends with the object, which can have any size. The other ends are aligned, so
    // that a cut at a multiple of the alignment never splits an element.
    const bool last = &run == &runs.back();
    if (run.end <= begin || (!last && run.end % kElementRunAlignment != 0)) {
      return absl::InvalidArgumentError(
          absl::StrCat("a run of ", DTypeName(run.dtype), " from byte ", begin, " to ", run.end,
                       ": a run is not empty, and all but the last end at a multiple of ",
                       kElementRunAlignment));
    }
    PHALANX_RETURN_IF_ERROR(CountElements(run.dtype, run.end - begin).status());
    begin = run.end;
  }
  return absl::OkStatus();
}

absl::Status CheckWhole(const ElementTypes& elements, uint64_t bytes) {
  if (elements.runs.empty()) return CountElements(elements.dtype, bytes).status();
  // CheckReducible has verified that every run is a whole number of elements.
  if (elements.runs.back().end == bytes) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("runs of elements end at byte ", elements.runs.back().end, " of ", bytes));
}

}  // namespace phalanx
