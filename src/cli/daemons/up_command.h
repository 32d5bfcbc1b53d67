// `phalanx up`: runs a private cluster of one directory and one node in one process.
#ifndef PHALANX_CLI_DAEMONS_UP_COMMAND_H_
#define PHALANX_CLI_DAEMONS_UP_COMMAND_H_

#include <memory>

#include "src/cli/command.h"

namespace phalanx::runtime {

std::unique_ptr<Command> NewUpCommand();

}  // namespace phalanx::runtime

#endif  // PHALANX_CLI_DAEMONS_UP_COMMAND_H_
