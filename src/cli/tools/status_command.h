// `phalanx status`: shows shards and nodes.
#ifndef PHALANX_CLI_TOOLS_STATUS_COMMAND_H_
#define PHALANX_CLI_TOOLS_STATUS_COMMAND_H_

#include <memory>

#include "src/cli/command.h"

namespace phalanx::runtime {

std::unique_ptr<Command> NewStatusCommand();

}  // namespace phalanx::runtime

#endif  // PHALANX_CLI_TOOLS_STATUS_COMMAND_H_
