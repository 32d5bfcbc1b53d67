#include "src/runtime/command/commands.h"

#include "src/runtime/command/bench_command.h"
#include "src/runtime/command/broadcast_command.h"
#include "src/runtime/command/describe_command.h"
#include "src/runtime/command/directory_command.h"
#include "src/runtime/command/get_command.h"
#include "src/runtime/command/ls_command.h"
#include "src/runtime/command/node_command.h"
#include "src/runtime/command/put_command.h"
#include "src/runtime/command/reduce_command.h"
#include "src/runtime/command/rm_command.h"
#include "src/runtime/command/status_command.h"
#include "src/runtime/command/top_command.h"
#include "src/runtime/command/up_command.h"

namespace phalanx::runtime {

std::vector<std::unique_ptr<Command>> AllCommands() {
  std::vector<std::unique_ptr<Command>> commands;
  commands.push_back(NewDirectoryCommand());
  commands.push_back(NewNodeCommand());
  commands.push_back(NewUpCommand());
  commands.push_back(NewPutCommand());
  commands.push_back(NewGetCommand());
  commands.push_back(NewBroadcastCommand());
  commands.push_back(NewReduceCommand());
  commands.push_back(NewRmCommand());
  commands.push_back(NewLsCommand());
  commands.push_back(NewDescribeCommand());
  commands.push_back(NewStatusCommand());
  commands.push_back(NewTopCommand());
  commands.push_back(NewBenchCommand());
  return commands;
}

}  // namespace phalanx::runtime
