#include "src/cli/commands.h"

#include "src/cli/daemons/directory_command.h"
#include "src/cli/daemons/node_command.h"
#include "src/cli/daemons/up_command.h"
#include "src/cli/jobs/jobs_command.h"
#include "src/cli/launch/launch_command.h"
#include "src/cli/objects/broadcast_command.h"
#include "src/cli/objects/end_scope_command.h"
#include "src/cli/objects/get_command.h"
#include "src/cli/objects/put_command.h"
#include "src/cli/objects/reduce_command.h"
#include "src/cli/objects/replicate_command.h"
#include "src/cli/objects/rm_command.h"
#include "src/cli/shell/completion_command.h"
#include "src/cli/shell/help_command.h"
#include "src/cli/tools/bench_command.h"
#include "src/cli/tools/describe_command.h"
#include "src/cli/tools/drain_command.h"
#include "src/cli/tools/ls_command.h"
#include "src/cli/tools/status_command.h"
#include "src/cli/tools/top_command.h"

namespace phalanx::runtime {

std::vector<std::unique_ptr<Command>> AllCommands() {
  std::vector<std::unique_ptr<Command>> commands;
  commands.push_back(NewDirectoryCommand());
  commands.push_back(NewNodeCommand());
  commands.push_back(NewUpCommand());
  commands.push_back(NewLaunchCommand());
  commands.push_back(NewPutCommand());
  commands.push_back(NewGetCommand());
  commands.push_back(NewBroadcastCommand());
  commands.push_back(NewReplicateCommand());
  commands.push_back(NewReduceCommand());
  commands.push_back(NewRmCommand());
  commands.push_back(NewEndScopeCommand());
  commands.push_back(NewLsCommand());
  commands.push_back(NewDescribeCommand());
  commands.push_back(NewDrainCommand());
  commands.push_back(NewJobsCommand());
  commands.push_back(NewStatusCommand());
  commands.push_back(NewTopCommand());
  commands.push_back(NewBenchCommand());
  commands.push_back(NewCompletionCommand(AllCommands));
  commands.push_back(NewHelpCommand(AllCommands));
  return commands;
}

}  // namespace phalanx::runtime
