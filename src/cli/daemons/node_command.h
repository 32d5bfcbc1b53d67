// `phalanx node`: runs the node of a host as a daemon.
#ifndef PHALANX_CLI_DAEMONS_NODE_COMMAND_H_
#define PHALANX_CLI_DAEMONS_NODE_COMMAND_H_

#include <memory>

#include "src/cli/command.h"

namespace phalanx::runtime {

std::unique_ptr<Command> NewNodeCommand();

}  // namespace phalanx::runtime

#endif  // PHALANX_CLI_DAEMONS_NODE_COMMAND_H_
