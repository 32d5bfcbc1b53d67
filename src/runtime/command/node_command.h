// `phalanx node`: runs the node of a host as a daemon.
#ifndef PHALANX_RUNTIME_COMMAND_NODE_COMMAND_H_
#define PHALANX_RUNTIME_COMMAND_NODE_COMMAND_H_

#include <memory>

#include "src/runtime/command/command.h"

namespace phalanx::runtime {

std::unique_ptr<Command> NewNodeCommand();

}  // namespace phalanx::runtime

#endif  // PHALANX_RUNTIME_COMMAND_NODE_COMMAND_H_
