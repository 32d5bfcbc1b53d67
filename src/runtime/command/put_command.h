// `phalanx put FILE`: stores a file under an id. Other processes can read the object while the file
// is still being read.
#ifndef PHALANX_RUNTIME_COMMAND_PUT_COMMAND_H_
#define PHALANX_RUNTIME_COMMAND_PUT_COMMAND_H_

#include <memory>

#include "src/runtime/command/command.h"

namespace phalanx::runtime {

std::unique_ptr<Command> NewPutCommand();

}  // namespace phalanx::runtime

#endif  // PHALANX_RUNTIME_COMMAND_PUT_COMMAND_H_
