// `phalanx ls`: lists the objects that the directory knows.
#ifndef PHALANX_RUNTIME_COMMAND_LS_COMMAND_H_
#define PHALANX_RUNTIME_COMMAND_LS_COMMAND_H_

#include <memory>

#include "src/runtime/command/command.h"

namespace phalanx::runtime {

std::unique_ptr<Command> NewLsCommand();

}  // namespace phalanx::runtime

#endif  // PHALANX_RUNTIME_COMMAND_LS_COMMAND_H_
