// What one subcommand of `phalanx` is: flags and something to run. One file per subcommand; the
// list is in commands.h, the parsing in command_line.h.
#ifndef PHALANX_RUNTIME_COMMAND_COMMAND_H_
#define PHALANX_RUNTIME_COMMAND_COMMAND_H_

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "src/runtime/command/flags.h"

namespace phalanx::runtime {

// Made by main, used by its thread alone: AddFlags once, then, if it is the one chosen, Run once.
class Command {
 public:
  virtual ~Command() = default;

  virtual absl::string_view name() const = 0;
  // One line, for the list of commands.
  virtual absl::string_view summary() const = 0;
  // Below the flags in --help; whole lines.
  virtual absl::string_view details() const { return ""; }
  // What the flags set lives as long as the command.
  virtual void AddFlags(Flags& flags) = 0;
  // Writes results to stdout. An error is printed by main, and becomes the exit code below.
  virtual absl::Status Run() = 0;
};

// 0 OK, 2 InvalidArgument (usage), 3 NotFound, 4 DeadlineExceeded, 5 Unavailable, 1 anything else.
int ExitCode(const absl::Status& status);

}  // namespace phalanx::runtime

#endif  // PHALANX_RUNTIME_COMMAND_COMMAND_H_
