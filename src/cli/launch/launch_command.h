// `phalanx launch`: starts the tasks of a job on this host.
#ifndef PHALANX_CLI_LAUNCH_LAUNCH_COMMAND_H_
#define PHALANX_CLI_LAUNCH_LAUNCH_COMMAND_H_

#include <memory>

#include "src/cli/command.h"

namespace phalanx::runtime {

std::unique_ptr<Command> NewLaunchCommand();

}  // namespace phalanx::runtime

#endif  // PHALANX_CLI_LAUNCH_LAUNCH_COMMAND_H_
