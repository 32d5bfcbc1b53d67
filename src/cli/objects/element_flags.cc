#include "src/cli/objects/element_flags.h"

#include <utility>
#include <vector>

#include "phalanx/elements.h"

namespace phalanx::runtime {

FlagValue DTypeChoice(std::string* target) {
  std::vector<std::string> names;
  for (const DType dtype : kAllDTypes) names.emplace_back(DTypeName(dtype));
  return Choice(target, std::move(names));
}

FlagValue ReduceOpChoice(std::string* target) {
  std::vector<std::string> names;
  for (const ReduceOp op : kAllReduceOps) names.emplace_back(ReduceOpName(op));
  return Choice(target, std::move(names));
}

}  // namespace phalanx::runtime
