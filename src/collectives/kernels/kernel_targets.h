// The loops over elements, once for each instruction set that they were compiled for. kernels.h
// uses the loops and defines what they compute; tests and benchmarks choose a target by hand.
//
// Constant data and pure functions: any thread.
#ifndef PHALANX_COLLECTIVES_KERNELS_KERNEL_TARGETS_H_
#define PHALANX_COLLECTIVES_KERNELS_KERNEL_TARGETS_H_

#include <cstddef>
#include <cstdint>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "src/common/elements.h"

namespace phalanx::collectives {

// Any alignment. `dst` is `a`, `b`, both, or overlaps neither. `bytes` are whole elements.
using FoldLoop = void (*)(uint8_t* dst, const uint8_t* a, const uint8_t* b, size_t bytes);

struct KernelTarget {
  absl::string_view name;  // "AVX3" (AVX-512), "AVX2", "SSE4", "SSSE3", "SCALAR", "NEON"

  // REQUIRES: CheckReducible(dtype, op).
  FoldLoop (*fold)(DType dtype, ReduceOp op);

  // dst[i] = src[i] * factor, of f16; `dst` is `src` or does not overlap it.
  void (*scale_f16)(uint8_t* dst, const uint8_t* src, size_t bytes, float factor);

  // values[i] = values[i] * factor / divisor in f32, finite where values[i] was.
  void (*finish_f16)(uint8_t* values, size_t bytes, float factor, uint64_t divisor);

  // values[i] /= divisor. REQUIRES: bf16, f32 or f64.
  void (*divide)(DType dtype, uint8_t* values, size_t bytes, uint64_t divisor);
};

// The targets that this machine can run, the fastest first; never empty.
absl::Span<const KernelTarget> SupportedKernelTargets();

inline const KernelTarget& BestKernelTarget() { return SupportedKernelTargets().front(); }

}  // namespace phalanx::collectives

#endif  // PHALANX_COLLECTIVES_KERNELS_KERNEL_TARGETS_H_
