// The `phalanx` command: daemons and tools in one executable.

#include <unistd.h>

#include <csignal>
#include <iostream>
#include <string>
#include <vector>

#include "src/cli/command_line.h"
#include "src/cli/commands.h"
#include "src/cli/views/colour.h"

int main(int argc, char** argv) {
  using namespace phalanx::runtime;  // NOLINT: this file is the program
  const auto commands = AllCommands();
  const ParsedCommandLine parsed = ParseCommandLine(
      commands, std::vector<std::string>(argv + 1, argv + argc), std::cout, std::cerr);
  if (parsed.command == nullptr) return parsed.exit_code;
  // If the reader of the output is gone, the write returns an error instead of ending the process.
  std::signal(SIGPIPE, SIG_IGN);
  absl::Status status = parsed.command->Run();
  if (status.ok() && parsed.command->output_is_result()) status = FlushOutput();
  if (IsClosedPipe(status)) {
    std::signal(SIGPIPE, SIG_DFL);
    std::raise(SIGPIPE);
  }
  if (!status.ok()) {
    std::cerr << ErrorLine(parsed.command->name(), status, parsed.json, HasColours(STDERR_FILENO))
              << std::flush;
  }
  return ExitCode(status);
}
