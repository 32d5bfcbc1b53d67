// `phalanx broadcast ID`: makes nodes fetch an object, and waits until they have it.
#ifndef PHALANX_RUNTIME_COMMAND_BROADCAST_COMMAND_H_
#define PHALANX_RUNTIME_COMMAND_BROADCAST_COMMAND_H_

#include <memory>

#include "src/runtime/command/command.h"

namespace phalanx::runtime {

std::unique_ptr<Command> NewBroadcastCommand();

}  // namespace phalanx::runtime

#endif  // PHALANX_RUNTIME_COMMAND_BROADCAST_COMMAND_H_
