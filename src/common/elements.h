// Elements of reductions: as they are known to users, and what all of an object's are.
#ifndef PHALANX_COMMON_ELEMENTS_H_
#define PHALANX_COMMON_ELEMENTS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "phalanx/elements.h"

namespace phalanx {

// Elements of one type, or runs of several. A value.
struct ElementTypes {
  ElementTypes() = default;
  // NOLINTNEXTLINE(google-explicit-constructor): an object of one type is the common case
  ElementTypes(DType dtype) : dtype(dtype) {}
  // The dtype counts when there are no runs; with runs it is left at f32, so that equal ones
  // compare equal.
  ElementTypes(DType dtype, std::vector<ElementRun> runs);

  DType dtype = DType::kF32;
  // CheckReducible says what they must be.
  std::vector<ElementRun> runs;

  // Where an object may be cut, but for its end: at multiples of so many bytes.
  uint64_t Grain() const;
  // "f32"; "runs of f32, i64".
  std::string Name() const;
  friend bool operator==(const ElementTypes&, const ElementTypes&) = default;
};

// Whether all of them can be reduced by that op, as the function for one type. InvalidArgument,
// too, for more than kMaxElementRuns, one that is empty or ends where none may.
absl::Status CheckReducible(const ElementTypes& elements, ReduceOp op);

// Whether `bytes` are whole elements and end with the last run. InvalidArgument naming both.
absl::Status CheckWhole(const ElementTypes& elements, uint64_t bytes);

}  // namespace phalanx

#endif  // PHALANX_COMMON_ELEMENTS_H_
