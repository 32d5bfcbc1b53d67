// The types of all elements of one object of a reduction. The public include/phalanx/elements.h has
// the single types and the ops; this header adds what only Phalanx's own code needs.
#ifndef PHALANX_COMMON_ELEMENTS_H_
#define PHALANX_COMMON_ELEMENTS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "phalanx/elements.h"

namespace phalanx {

// The elements of one object: all of one type, or runs of several types. A value.
struct ElementTypes {
  ElementTypes() = default;
  // NOLINTNEXTLINE(google-explicit-constructor): an object of one type is the common case
  ElementTypes(DType dtype) : dtype(dtype) {}
  // With runs, the constructor sets `dtype` to f32, so that equal runs compare equal.
  ElementTypes(DType dtype, std::vector<ElementRun> runs);

  DType dtype = DType::kF32;
  // CheckReducible defines which runs are valid.
  std::vector<ElementRun> runs;

  // An object can be cut at multiples of this many bytes, and at its end.
  uint64_t Grain() const;
  // Returns a text like "f32" or "runs of f32, i64".
  std::string Name() const;
  friend bool operator==(const ElementTypes&, const ElementTypes&) = default;
};

// Returns OK if `op` can reduce all elements. Returns InvalidArgument if `op` does not fit a type
// (as the overload for one type does), if there are more than kMaxElementRuns runs, if a run is
// empty, or if a run other than the last ends at a byte that is no multiple of
// kElementRunAlignment.
absl::Status CheckReducible(const ElementTypes& elements, ReduceOp op);

// Returns OK if `bytes` is a whole number of elements and, with runs, the end of the last run.
// Returns InvalidArgument naming both numbers otherwise.
absl::Status CheckWhole(const ElementTypes& elements, uint64_t bytes);

}  // namespace phalanx

#endif  // PHALANX_COMMON_ELEMENTS_H_
