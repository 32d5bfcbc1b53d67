// Finds the chosen subcommand and fills in its flags from the command line, the environment
// (PHALANX_*) and a configuration file (--config FILE or PHALANX_CONFIG), in this order of
// precedence.
//
// The file is TOML with the names of flags as keys. Keys at its top apply to every command that has
// such a flag; keys under [node] and the like apply only to that command. A key that no command has
// is an error. Errors of the file name the file, the line and the key, and what the key accepts. A
// command without settings, such as `help`, does not read the file of PHALANX_CONFIG.
//
//   cluster-id = "training"
//   secret-file = "/etc/phalanx/secret"
//   [node]
//   capacity = "64GiB"
//   label = ["zone=a", "rack=7"]
//
// Main's thread only.
#ifndef PHALANX_CLI_COMMAND_LINE_H_
#define PHALANX_CLI_COMMAND_LINE_H_

#include <iosfwd>
#include <memory>
#include <string>
#include <vector>

#include "src/cli/command.h"

namespace phalanx::runtime {

struct ParsedCommandLine {
  // The command to run; null if there is nothing to run.
  Command* command = nullptr;
  // If there is nothing to run: 0 after --help and --version, 2 after wrong usage.
  int exit_code = 0;
  // The command has --json, and it was given: errors are JSON as well.
  bool json = false;
};

// `arguments` does not include the program's name. Help goes to `out`, usage errors to `err`, as
// JSON if --json is among the arguments. Does not throw.
ParsedCommandLine ParseCommandLine(const std::vector<std::unique_ptr<Command>>& commands,
                                   const std::vector<std::string>& arguments, std::ostream& out,
                                   std::ostream& err);

}  // namespace phalanx::runtime

#endif  // PHALANX_CLI_COMMAND_LINE_H_
