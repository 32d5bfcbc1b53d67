// `phalanx status`: shows shards and nodes.
#ifndef PHALANX_RUNTIME_COMMAND_STATUS_COMMAND_H_
#define PHALANX_RUNTIME_COMMAND_STATUS_COMMAND_H_

#include <memory>

#include "src/runtime/command/command.h"

namespace phalanx::runtime {

std::unique_ptr<Command> NewStatusCommand();

}  // namespace phalanx::runtime

#endif  // PHALANX_RUNTIME_COMMAND_STATUS_COMMAND_H_
