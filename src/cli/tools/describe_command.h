// `phalanx describe ID`: shows one object and the tree in which it spreads.
#ifndef PHALANX_CLI_TOOLS_DESCRIBE_COMMAND_H_
#define PHALANX_CLI_TOOLS_DESCRIBE_COMMAND_H_

#include <memory>

#include "src/cli/command.h"

namespace phalanx::runtime {

std::unique_ptr<Command> NewDescribeCommand();

}  // namespace phalanx::runtime

#endif  // PHALANX_CLI_TOOLS_DESCRIBE_COMMAND_H_
