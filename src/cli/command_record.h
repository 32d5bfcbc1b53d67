// The declarations of subcommands and their flags as values, for manual pages and completion. The
// commands are the only source: a flag that is declared appears everywhere. Main's thread only.
#ifndef PHALANX_CLI_COMMAND_RECORD_H_
#define PHALANX_CLI_COMMAND_RECORD_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "src/cli/command.h"

namespace phalanx::runtime {

struct FlagRecord {
  std::string group;
  // {"-n", "--name"}, the long name last; of a positional {"FILE"}.
  std::vector<std::string> names;
  std::string help;
  // "SIZE"; empty: a switch, or a positional.
  std::string type;
  std::string default_text;
  // "PHALANX_STALL_TIMEOUT"; empty: not read from the environment.
  std::string variable;
  std::vector<std::string> choices;
  bool repeated = false;
  bool positional = false;
  bool required = false;

  const std::string& long_name() const { return names.back(); }
  bool takes_value() const { return positional || !type.empty(); }
  // The value is the name of a file.
  bool takes_file() const;
};

struct CommandRecord {
  std::string name;
  std::string summary;
  std::string details;
  // In the order of the declarations.
  std::vector<FlagRecord> flags;
};

// Calls AddFlags of the command, which must not be called again.
CommandRecord Record(Command& command);
std::vector<CommandRecord> RecordAll(const std::vector<std::unique_ptr<Command>>& commands);

// The flags of every command: --help, --version, --config.
std::vector<FlagRecord> GlobalFlags();

// What `phalanx` is, in one line.
extern const absl::string_view kProgramSummary;

}  // namespace phalanx::runtime

#endif  // PHALANX_CLI_COMMAND_RECORD_H_
