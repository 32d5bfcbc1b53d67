// f32 as f16 (binary16) or bf16, and back, in loops that the compiler vectorizes.
//
// Narrowing rounds to nearest, ties to even; beyond the largest number it is infinity, and
// denormals are kept. A NaN stays one, with its sign and the upper bits of its payload, and becomes
// quiet. Widening is exact. Pointers have any alignment, and the arrays do not overlap. Pure
// functions; any thread.
#ifndef PHALANX_PS_ROWS_HALF_FLOATS_H_
#define PHALANX_PS_ROWS_HALF_FLOATS_H_

#include <cstdint>

namespace phalanx::ps::internal {

void F32ToF16(const void* in, void* out, uint64_t count);
void F32ToBf16(const void* in, void* out, uint64_t count);
void F16ToF32(const void* in, void* out, uint64_t count);
void Bf16ToF32(const void* in, void* out, uint64_t count);

}  // namespace phalanx::ps::internal

#endif  // PHALANX_PS_ROWS_HALF_FLOATS_H_
