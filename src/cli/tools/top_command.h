// `phalanx top`: shows shards, nodes and running transfers, again and again.
#ifndef PHALANX_CLI_TOOLS_TOP_COMMAND_H_
#define PHALANX_CLI_TOOLS_TOP_COMMAND_H_

#include <memory>

#include "src/cli/command.h"

namespace phalanx::runtime {

std::unique_ptr<Command> NewTopCommand();

}  // namespace phalanx::runtime

#endif  // PHALANX_CLI_TOOLS_TOP_COMMAND_H_
