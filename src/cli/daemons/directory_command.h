// `phalanx directory`: runs one shard of the directory as a daemon.
#ifndef PHALANX_CLI_DAEMONS_DIRECTORY_COMMAND_H_
#define PHALANX_CLI_DAEMONS_DIRECTORY_COMMAND_H_

#include <memory>

#include "src/cli/command.h"

namespace phalanx::runtime {

std::unique_ptr<Command> NewDirectoryCommand();

}  // namespace phalanx::runtime

#endif  // PHALANX_CLI_DAEMONS_DIRECTORY_COMMAND_H_
