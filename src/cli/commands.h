// All subcommands of `phalanx`, in the order of the help. A new command is a new file and a line in
// commands.cc.
#ifndef PHALANX_CLI_COMMANDS_H_
#define PHALANX_CLI_COMMANDS_H_

#include <memory>
#include <vector>

#include "src/cli/command.h"

namespace phalanx::runtime {

std::vector<std::unique_ptr<Command>> AllCommands();

}  // namespace phalanx::runtime

#endif  // PHALANX_CLI_COMMANDS_H_
