// `phalanx get ID -o FILE`: fetches an object, writing it while it arrives.
#ifndef PHALANX_RUNTIME_COMMAND_GET_COMMAND_H_
#define PHALANX_RUNTIME_COMMAND_GET_COMMAND_H_

#include <memory>

#include "src/runtime/command/command.h"

namespace phalanx::runtime {

std::unique_ptr<Command> NewGetCommand();

}  // namespace phalanx::runtime

#endif  // PHALANX_RUNTIME_COMMAND_GET_COMMAND_H_
