// `phalanx replicate ID COPIES`: asks for primary copies of an object on so many hosts, and waits
// until they are there.
#ifndef PHALANX_CLI_OBJECTS_REPLICATE_COMMAND_H_
#define PHALANX_CLI_OBJECTS_REPLICATE_COMMAND_H_

#include <memory>

#include "src/cli/command.h"

namespace phalanx::runtime {

std::unique_ptr<Command> NewReplicateCommand();

}  // namespace phalanx::runtime

#endif  // PHALANX_CLI_OBJECTS_REPLICATE_COMMAND_H_
