// `phalanx top`: shows shards, nodes and running transfers, again and again.
#ifndef PHALANX_RUNTIME_COMMAND_TOP_COMMAND_H_
#define PHALANX_RUNTIME_COMMAND_TOP_COMMAND_H_

#include <memory>

#include "src/runtime/command/command.h"

namespace phalanx::runtime {

std::unique_ptr<Command> NewTopCommand();

}  // namespace phalanx::runtime

#endif  // PHALANX_RUNTIME_COMMAND_TOP_COMMAND_H_
