#include "src/collectives/block_fold.h"

#include <cstring>

#include "src/collectives/kernels.h"

namespace phalanx::collectives {

BlockFold::BlockFold(const Spec& spec, uint64_t block_bytes)
    : spec_(spec), block_bytes_(block_bytes), prepares_(NeedsPrepare(spec.dtype, spec.op)) {}

const void* BlockFold::Prepared(absl::Span<const Operand> operands, size_t index, uint64_t count) {
  const Operand& operand = operands[index];
  if (!prepares_ || !operand.raw) return operand.from;
  if (scratch_.empty()) scratch_.resize(2 * block_bytes_);
  char* const prepared = scratch_.data() + (index == 0 ? 0 : block_bytes_);
  Prepare(spec_.dtype, spec_.op, prepared, operand.from, count, spec_.planned);
  return prepared;
}

void BlockFold::Run(absl::Span<const Operand> operands, char* out, uint64_t bytes) {
  const uint64_t count = bytes / ElementSize(spec_.dtype);
  if (operands.size() > 1) {
    const void* const first = Prepared(operands, 0, count);
    Fold(spec_.dtype, spec_.op, out, first, Prepared(operands, 1, count), count);
    for (size_t i = 2; i < operands.size(); ++i) {
      Fold(spec_.dtype, spec_.op, out, out, Prepared(operands, i, count), count);
    }
  } else if (prepares_ && operands[0].raw) {
    Prepare(spec_.dtype, spec_.op, out, operands[0].from, count, spec_.planned);
  } else if (operands[0].from != out && bytes > 0) {
    std::memcpy(out, operands[0].from, bytes);
  }
  if (spec_.finish_sources > 0) {
    Finish(spec_.dtype, spec_.op, out, count, spec_.finish_sources, spec_.planned);
  }
}

}  // namespace phalanx::collectives
