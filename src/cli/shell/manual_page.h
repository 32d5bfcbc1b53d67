// Manual pages of section 1, in roff with the man macros. Pure; any thread.
#ifndef PHALANX_CLI_SHELL_MANUAL_PAGE_H_
#define PHALANX_CLI_SHELL_MANUAL_PAGE_H_

#include <string>
#include <vector>

#include "src/cli/command_record.h"

namespace phalanx::runtime {

// phalanx(1): the program, its commands, the configuration file, exit codes.
std::string ProgramPage(const std::vector<CommandRecord>& commands);

// phalanx-put(1) and the like.
std::string CommandPage(const CommandRecord& command);

}  // namespace phalanx::runtime

#endif  // PHALANX_CLI_SHELL_MANUAL_PAGE_H_
