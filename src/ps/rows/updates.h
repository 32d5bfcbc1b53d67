// What each update of a table does to elements: plain loops that the compiler vectorizes.
//
// Nothing is contracted or reordered: each element has the bits of the formulas in
// phalanx/ps_table.h, computed in its type from left to right. Integers wrap. Pure functions; any
// thread.
#ifndef PHALANX_PS_ROWS_UPDATES_H_
#define PHALANX_PS_ROWS_UPDATES_H_

#include <cstdint>

#include "phalanx/ps_table.h"

namespace phalanx::ps::internal {

// How many arrays an update keeps beside the values: 0, 1 or 2.
int StateArrays(Update update);

// `pushed` has any alignment. The arrays are `count` elements each, and do not overlap; those that
// the update does not keep are not touched. momentum: `first` is v; adagrad: s; ftrl: z, and
// `second` is the sum of squares n.
using UpdateLoop = void (*)(const TableSpec& spec, const void* pushed, void* values, void* first,
                            void* second, uint64_t count);
// REQUIRES: Check(spec) is OK, and the update is not kOwn.
UpdateLoop UpdateLoopOf(const TableSpec& spec);

// sums[i] += pushed[i]. `pushed` has any alignment.
using AddLoop = void (*)(const void* pushed, void* sums, uint64_t count);
// REQUIRES: f32, f64, i32 or i64.
AddLoop AddLoopOf(DType dtype);

}  // namespace phalanx::ps::internal

#endif  // PHALANX_PS_ROWS_UPDATES_H_
