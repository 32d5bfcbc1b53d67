// `phalanx ls`: lists the objects that the directory knows.
#ifndef PHALANX_CLI_TOOLS_LS_COMMAND_H_
#define PHALANX_CLI_TOOLS_LS_COMMAND_H_

#include <memory>

#include "src/cli/command.h"

namespace phalanx::runtime {

std::unique_ptr<Command> NewLsCommand();

}  // namespace phalanx::runtime

#endif  // PHALANX_CLI_TOOLS_LS_COMMAND_H_
