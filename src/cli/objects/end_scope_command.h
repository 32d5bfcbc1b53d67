// `phalanx end-scope NAME`: frees all objects of a scope, on all nodes.
#ifndef PHALANX_CLI_OBJECTS_END_SCOPE_COMMAND_H_
#define PHALANX_CLI_OBJECTS_END_SCOPE_COMMAND_H_

#include <memory>

#include "src/cli/command.h"

namespace phalanx::runtime {

std::unique_ptr<Command> NewEndScopeCommand();

}  // namespace phalanx::runtime

#endif  // PHALANX_CLI_OBJECTS_END_SCOPE_COMMAND_H_
