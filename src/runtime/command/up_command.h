// `phalanx up`: runs a private cluster of one directory and one node in one process.
#ifndef PHALANX_RUNTIME_COMMAND_UP_COMMAND_H_
#define PHALANX_RUNTIME_COMMAND_UP_COMMAND_H_

#include <memory>

#include "src/runtime/command/command.h"

namespace phalanx::runtime {

std::unique_ptr<Command> NewUpCommand();

}  // namespace phalanx::runtime

#endif  // PHALANX_RUNTIME_COMMAND_UP_COMMAND_H_
