// `phalanx help [COMMAND]`: the text of --help, or a manual page.
#ifndef PHALANX_CLI_SHELL_HELP_COMMAND_H_
#define PHALANX_CLI_SHELL_HELP_COMMAND_H_

#include <functional>
#include <memory>
#include <vector>

#include "src/cli/command.h"

namespace phalanx::runtime {

// `all` creates every command, this one included.
std::unique_ptr<Command> NewHelpCommand(std::function<std::vector<std::unique_ptr<Command>>()> all);

}  // namespace phalanx::runtime

#endif  // PHALANX_CLI_SHELL_HELP_COMMAND_H_
