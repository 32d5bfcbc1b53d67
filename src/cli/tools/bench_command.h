// `phalanx bench OP`: one rank of a benchmark; benchmarks/run starts all of them.
#ifndef PHALANX_CLI_TOOLS_BENCH_COMMAND_H_
#define PHALANX_CLI_TOOLS_BENCH_COMMAND_H_

#include <memory>

#include "src/cli/command.h"

namespace phalanx::runtime {

std::unique_ptr<Command> NewBenchCommand();

}  // namespace phalanx::runtime

#endif  // PHALANX_CLI_TOOLS_BENCH_COMMAND_H_
