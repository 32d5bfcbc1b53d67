// The results that kernels.h promises, computed element by element, slowly and in another way:
// floats of 16 bits through the value that their fields stand for, integers in the widest type.
// Testonly.
#ifndef PHALANX_COLLECTIVES_KERNELS_KERNEL_REFERENCE_H_
#define PHALANX_COLLECTIVES_KERNELS_KERNEL_REFERENCE_H_

#include <cstdint>
#include <vector>

#include "src/common/elements.h"

namespace phalanx::collectives {

// An element as the little-endian number of its bytes.
using Bits = uint64_t;

// The value of a float. Exact.
double ValueOf(DType dtype, Bits bits);

// The float nearest to a value, ties to even; infinity beyond the largest; every NaN the quiet one.
Bits NearestTo(DType dtype, double value);

// One fold. REQUIRES: CheckReducible(dtype, op) is OK; another op aborts.
Bits FoldReference(DType dtype, ReduceOp op, Bits a, Bits b);

// Zeros, ends, neighbours, infinities and NaN of either kind and sign.
std::vector<Bits> SpecialBits(DType dtype);

// Elements and the bytes that they lie in.
std::vector<uint8_t> BytesOf(DType dtype, const std::vector<Bits>& elements);
std::vector<Bits> ElementsOf(DType dtype, const std::vector<uint8_t>& bytes);

}  // namespace phalanx::collectives

#endif  // PHALANX_COLLECTIVES_KERNELS_KERNEL_REFERENCE_H_
