// `phalanx get ID -o FILE`: fetches an object, writing it while it arrives.
#ifndef PHALANX_CLI_OBJECTS_GET_COMMAND_H_
#define PHALANX_CLI_OBJECTS_GET_COMMAND_H_

#include <memory>

#include "src/cli/command.h"

namespace phalanx::runtime {

std::unique_ptr<Command> NewGetCommand();

}  // namespace phalanx::runtime

#endif  // PHALANX_CLI_OBJECTS_GET_COMMAND_H_
