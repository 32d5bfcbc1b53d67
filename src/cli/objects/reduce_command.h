// `phalanx reduce TARGET SOURCE...`: computes an object from others, or prints the sources of one.
#ifndef PHALANX_CLI_OBJECTS_REDUCE_COMMAND_H_
#define PHALANX_CLI_OBJECTS_REDUCE_COMMAND_H_

#include <memory>

#include "src/cli/command.h"

namespace phalanx::runtime {

std::unique_ptr<Command> NewReduceCommand();

}  // namespace phalanx::runtime

#endif  // PHALANX_CLI_OBJECTS_REDUCE_COMMAND_H_
