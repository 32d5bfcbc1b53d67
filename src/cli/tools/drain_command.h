// `phalanx drain NODE`: copies what only one node has to other nodes, before its host is taken
// away.
#ifndef PHALANX_CLI_TOOLS_DRAIN_COMMAND_H_
#define PHALANX_CLI_TOOLS_DRAIN_COMMAND_H_

#include <memory>

#include "src/cli/command.h"

namespace phalanx::runtime {

std::unique_ptr<Command> NewDrainCommand();

}  // namespace phalanx::runtime

#endif  // PHALANX_CLI_TOOLS_DRAIN_COMMAND_H_
