// `phalanx rm ID...`: deletes objects everywhere.
#ifndef PHALANX_CLI_OBJECTS_RM_COMMAND_H_
#define PHALANX_CLI_OBJECTS_RM_COMMAND_H_

#include <memory>

#include "src/cli/command.h"

namespace phalanx::runtime {

std::unique_ptr<Command> NewRmCommand();

}  // namespace phalanx::runtime

#endif  // PHALANX_CLI_OBJECTS_RM_COMMAND_H_
