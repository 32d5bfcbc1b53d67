// `phalanx jobs`: lists the jobs whose tasks have joined.
#ifndef PHALANX_CLI_JOBS_JOBS_COMMAND_H_
#define PHALANX_CLI_JOBS_JOBS_COMMAND_H_

#include <memory>

#include "src/cli/command.h"

namespace phalanx::runtime {

std::unique_ptr<Command> NewJobsCommand();

}  // namespace phalanx::runtime

#endif  // PHALANX_CLI_JOBS_JOBS_COMMAND_H_
