// Folds blocks of operands into blocks of the result, from left to right. A StreamFold folds the
// bytes that have arrived block by block; a small reduction folds all bytes in one block.
//
// Thread rule: any thread, one at a time: prepared operands lie in scratch memory of the fold.
#ifndef PHALANX_COLLECTIVES_FOLD_BLOCK_FOLD_H_
#define PHALANX_COLLECTIVES_FOLD_BLOCK_FOLD_H_

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "src/common/elements.h"

namespace phalanx::collectives {

class BlockFold {
 public:
  struct Operand {
    const char* from = nullptr;
    // A source as it was put, which goes through Prepare() if the op needs it.
    bool raw = false;
  };

  struct Spec {
    ElementTypes elements;
    ReduceOp op = ReduceOp::kSum;
    // Sources of the whole reduction.
    uint64_t planned = 1;
    // At the root: how many sources went in, for Finish(); elsewhere 0.
    uint64_t finish_sources = 0;
  };

  // REQUIRES: CheckReducible(elements, op); block_bytes is whole elements.
  BlockFold(Spec spec, uint64_t block_bytes);

  // out[0, bytes) = the fold of the operands' first `bytes`, which are bytes [position, + bytes) of
  // the result. REQUIRES: bytes <= block_bytes, whole elements; at least one operand; `out` is one
  // of the first two operands, or overlaps none.
  void Run(absl::Span<const Operand> operands, char* out, uint64_t position, uint64_t bytes);

 private:
  // Bytes of one type, from `at` on in the block.
  void RunOf(DType dtype, absl::Span<const Operand> operands, char* out, uint64_t at,
             uint64_t bytes);
  // The operand's bytes from `at` on, prepared if the op needs it.
  const void* Prepared(DType dtype, absl::Span<const Operand> operands, size_t index, uint64_t at,
                       uint64_t count);

  const Spec spec_;
  const uint64_t block_bytes_;
  // Two prepared operands of a block; allocated with the first one.
  std::vector<char> scratch_;
};

}  // namespace phalanx::collectives

#endif  // PHALANX_COLLECTIVES_FOLD_BLOCK_FOLD_H_
