// The interface of a subcommand of `phalanx`: its flags and a function to run. Each subcommand has
// its own file. commands.h lists them, and command_line.h parses their flags.
#ifndef PHALANX_CLI_COMMAND_H_
#define PHALANX_CLI_COMMAND_H_

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "src/cli/flags.h"

namespace phalanx::runtime {

// main creates it and uses it on its own thread: it calls AddFlags once, and then Run once if the
// command is the chosen one.
class Command {
 public:
  virtual ~Command() = default;

  virtual absl::string_view name() const = 0;
  // One line for the list of commands.
  virtual absl::string_view summary() const = 0;
  // Printed below the flags in --help; whole lines.
  virtual absl::string_view details() const { return ""; }
  // False for a daemon, which prints only that it has started: output that could not be written is
  // no error of it then.
  virtual bool output_is_result() const { return true; }
  // The targets of the flags live as long as the command.
  virtual void AddFlags(Flags& flags) = 0;
  // Writes results to stdout. main prints an error and turns it into the exit code below.
  virtual absl::Status Run() = 0;
};

// 0 OK, 2 InvalidArgument (usage), 3 NotFound, 4 DeadlineExceeded, 5 Unavailable, 1 any other
// error; that of WithExitCode, if it was called.
int ExitCode(const absl::Status& status);

// Returns the error with an exit code of its own, for commands that end as another program did.
// REQUIRES: !status.ok().
absl::Status WithExitCode(absl::Status status, int code);

struct ExitCodeMeaning {
  int code;
  absl::string_view meaning;
};
// The codes above and their meanings, for help pages.
inline constexpr ExitCodeMeaning kExitCodes[] = {{0, "done"},      {1, "error"},
                                                 {2, "usage"},     {3, "not found"},
                                                 {4, "timed out"}, {5, "unavailable"}};

// The line that main prints for an error: a JSON object with command, code, error and exit_code, or
// "phalanx get: no such object (NOT_FOUND)". Ends with a newline.
std::string ErrorLine(absl::string_view command, const absl::Status& status, bool json,
                      bool colours);

// The result of a command whose output goes to a pipe that its reader has closed. main ends the
// process by SIGPIPE then, without a message, as `cat` ends.
absl::Status ClosedPipe();
bool IsClosedPipe(const absl::Status& status);

// Flushes standard output. Returns ClosedPipe, or Unknown if the output could not be written for
// another reason, at any time since the start.
absl::Status FlushOutput();

}  // namespace phalanx::runtime

#endif  // PHALANX_CLI_COMMAND_H_
