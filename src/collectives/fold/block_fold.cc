#include "src/collectives/fold/block_fold.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "src/collectives/kernels/kernels.h"

namespace phalanx::collectives {

BlockFold::BlockFold(Spec spec, uint64_t block_bytes)
    : spec_(std::move(spec)), block_bytes_(block_bytes) {}

void BlockFold::Run(absl::Span<const Operand> operands, char* out, uint64_t position,
                    uint64_t bytes) {
  const std::vector<ElementRun>& runs = spec_.elements.runs;
  if (runs.empty()) return RunOf(spec_.elements.dtype, operands, out, 0, bytes);
  // The block can begin within any run, and cover several.
  auto run = std::upper_bound(
      runs.begin(), runs.end(), position,
      [](uint64_t place, const ElementRun& candidate) { return place < candidate.end; });
  for (uint64_t at = 0; at < bytes; ++run) {
    const uint64_t part = std::min(bytes - at, run->end - (position + at));
    RunOf(run->dtype, operands, out, at, part);
    at += part;
  }
}

const void* BlockFold::Prepared(DType dtype, absl::Span<const Operand> operands, size_t index,
                                uint64_t at, uint64_t count) {
  const Operand& operand = operands[index];
  if (!operand.raw || !NeedsPrepare(dtype, spec_.op)) return operand.from + at;
  // Most folds prepare nothing, so the scratch is not allocated before it is needed.
  if (scratch_.empty()) scratch_.resize(2 * block_bytes_);
  // Operands after the first are prepared one at a time, and share the second block.
  char* const prepared = scratch_.data() + (index == 0 ? 0 : block_bytes_);
  Prepare(dtype, spec_.op, prepared, operand.from + at, count, spec_.planned);
  return prepared;
}

void BlockFold::RunOf(DType dtype, absl::Span<const Operand> operands, char* out, uint64_t at,
                      uint64_t bytes) {
  const uint64_t count = bytes / ElementSize(dtype);
  char* const into = out + at;
  if (operands.size() > 1) {
    const void* const first = Prepared(dtype, operands, 0, at, count);
    Fold(dtype, spec_.op, into, first, Prepared(dtype, operands, 1, at, count), count);
    // The first two may lie in `out`; from here on the partial result does.
    for (size_t i = 2; i < operands.size(); ++i) {
      Fold(dtype, spec_.op, into, into, Prepared(dtype, operands, i, at, count), count);
    }
  } else if (operands[0].raw && NeedsPrepare(dtype, spec_.op)) {
    Prepare(dtype, spec_.op, into, operands[0].from + at, count, spec_.planned);
  } else if (operands[0].from != out && bytes > 0) {
    std::memcpy(into, operands[0].from + at, bytes);
  }
  // While the block is in the cache, instead of in a second pass over the result.
  if (spec_.finish_sources > 0) {
    Finish(dtype, spec_.op, into, count, spec_.finish_sources, spec_.planned);
  }
}

}  // namespace phalanx::collectives
