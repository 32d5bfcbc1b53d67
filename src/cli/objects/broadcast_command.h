// `phalanx broadcast ID`: makes nodes fetch an object, and waits until they have it.
#ifndef PHALANX_CLI_OBJECTS_BROADCAST_COMMAND_H_
#define PHALANX_CLI_OBJECTS_BROADCAST_COMMAND_H_

#include <memory>

#include "src/cli/command.h"

namespace phalanx::runtime {

std::unique_ptr<Command> NewBroadcastCommand();

}  // namespace phalanx::runtime

#endif  // PHALANX_CLI_OBJECTS_BROADCAST_COMMAND_H_
