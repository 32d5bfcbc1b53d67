// `phalanx rm ID...`: deletes objects everywhere.
#ifndef PHALANX_RUNTIME_COMMAND_RM_COMMAND_H_
#define PHALANX_RUNTIME_COMMAND_RM_COMMAND_H_

#include <memory>

#include "src/runtime/command/command.h"

namespace phalanx::runtime {

std::unique_ptr<Command> NewRmCommand();

}  // namespace phalanx::runtime

#endif  // PHALANX_RUNTIME_COMMAND_RM_COMMAND_H_
