// `phalanx completion SHELL`: prints the script that makes a shell complete arguments.
#ifndef PHALANX_CLI_SHELL_COMPLETION_COMMAND_H_
#define PHALANX_CLI_SHELL_COMPLETION_COMMAND_H_

#include <functional>
#include <memory>
#include <vector>

#include "src/cli/command.h"

namespace phalanx::runtime {

// `all` creates every command, this one included.
std::unique_ptr<Command> NewCompletionCommand(
    std::function<std::vector<std::unique_ptr<Command>>()> all);

}  // namespace phalanx::runtime

#endif  // PHALANX_CLI_SHELL_COMPLETION_COMMAND_H_
