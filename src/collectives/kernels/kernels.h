// The arithmetic of a reduction: element-wise folds of two pieces of memory into a third, by the
// widest SIMD instructions that the machine has, and what comes before and after them.
//
//   Prepare(source)      only where NeedsPrepare(), each source once
//   Fold(dst, a, b)      in any tree
//   Finish(result)       once, at the root; does something for means alone
//
// Pure functions of their arguments, without allocation: any thread. Pointers may have any
// alignment; nothing is read or written beyond `count` elements; `count` may be 0. They are for
// arguments that CheckReducible() has accepted: a pair that it refuses is a broken invariant.
//
// What is computed, bit for bit the same with every instruction set:
// - Integers wrap: the result modulo 2^bits.
// - f32 and f64 are folded in their own precision, each operation rounded to nearest even. Nothing
//   is contracted or reordered: folding one source after the other is the scalar left fold.
// - f16 and bf16 are folded in f32, and each fold is rounded to nearest even into the type, as
//   partial results have the type of the elements. One fold of normal numbers is off by at most
//   2^-11 (f16) or 2^-8 (bf16) of its result, a sum of n sources of one sign by about n - 1 times
//   that in a chain and ceil(log2 n) times in a balanced tree. A chain stagnates: adding 1 to 2048
//   in f16, or to 256 in bf16, changes nothing. A result that rounds beyond the largest number
//   (f16: 65504, from 65520 on; bf16: 3.39e38) is infinity. Denormals are kept.
// - A NaN among the inputs of a fold makes its result NaN, for minimum and maximum too, and every
//   NaN that comes out of a fold is the positive quiet one without payload (f32: 0x7fc00000).
// - -0 is less than +0: the minimum of both is -0, the maximum +0 (IEEE 754-2019, minimum and
//   maximum). -0 + -0 is -0.
//
// A mean is a sum that is divided once, by how many sources went in. To keep sums of f16 from
// overflowing, Prepare() scales each source down by a power of two, so that the sum of as many as
// were planned stays below half of the largest number, and Finish() undoes the scaling together
// with the division. The other half is room for what the folds round up: a mean of finite f16 is
// finite as long as no more sources arrive than were planned and either each is folded in one after
// the other or no source passes more than 1,400 folds on its way to the root. Scaling is exact but
// for numbers that it takes below 2^-14: with P planned sources the mean is off by up to P * 2^-23
// more than by the folds. The other types are not scaled: a sum in f32, f64 and bf16 can overflow
// where the mean would not.
#ifndef PHALANX_COLLECTIVES_KERNELS_KERNELS_H_
#define PHALANX_COLLECTIVES_KERNELS_KERNELS_H_

#include <cstdint>

#include "src/collectives/kernels/kernel_targets.h"
#include "src/common/elements.h"

namespace phalanx::collectives {

// dst[i] = a[i] op b[i] for i < count, where mean is sum. `dst` may be `a`, `b` or both.
// REQUIRES: `dst` overlaps neither `a` nor `b` otherwise.
void Fold(DType dtype, ReduceOp op, void* dst, const void* a, const void* b, uint64_t count,
          const KernelTarget& target = BestKernelTarget());

// Whether sources must go through Prepare() before they are folded: means of f16. The sources of
// all other reductions are folded where they lie.
bool NeedsPrepare(DType dtype, ReduceOp op);
// Whether any of the elements' types needs it.
bool NeedsPrepare(const ElementTypes& elements, ReduceOp op);

// dst[i] = the value that stands for src[i] in the folds of a reduction of `planned` sources; a
// copy unless NeedsPrepare(). `planned` is the same at every node and in Finish(). REQUIRES: `dst`
// is `src` or does not overlap it; planned >= 1.
void Prepare(DType dtype, ReduceOp op, void* dst, const void* src, uint64_t count, uint64_t planned,
             const KernelTarget& target = BestKernelTarget());

// Turns the fold of `sources` sources into the result, in place. A mean is divided by `sources`,
// which is first rounded to the type; f16 and bf16 in f32, and then rounded; every NaN is the
// quiet one. The results of all other ops are left alone. REQUIRES: sources, planned >= 1.
void Finish(DType dtype, ReduceOp op, void* values, uint64_t count, uint64_t sources,
            uint64_t planned, const KernelTarget& target = BestKernelTarget());

// dst[i] = e, so that Fold of e and any x that is not NaN is x, bit for bit: -0 for a float's sum,
// infinity for its minimum, the largest for an integer's. NaN becomes the quiet one.
void FillIdentity(DType dtype, ReduceOp op, void* dst, uint64_t count);

}  // namespace phalanx::collectives

#endif  // PHALANX_COLLECTIVES_KERNELS_KERNELS_H_
