// `phalanx put FILE`: stores a file under an id. Other processes can read the object while the file
// is still being read.
#ifndef PHALANX_CLI_OBJECTS_PUT_COMMAND_H_
#define PHALANX_CLI_OBJECTS_PUT_COMMAND_H_

#include <memory>

#include "src/cli/command.h"

namespace phalanx::runtime {

std::unique_ptr<Command> NewPutCommand();

}  // namespace phalanx::runtime

#endif  // PHALANX_CLI_OBJECTS_PUT_COMMAND_H_
