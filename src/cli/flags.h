// How a subcommand declares its flags, independent of the library that parses them.
//
//   flags.Group("Memory");
//   flags.Setting("--capacity", "Most bytes of objects held here", ByteSize(&options.capacity));
//   flags.Argument("-o,--output", "Where to write", Text(&output));
//   flags.Positional("ID", "The object", Text(&id));
//
// A Setting is also read from the environment (--stall-timeout: PHALANX_STALL_TIMEOUT) and from the
// configuration file (stall-timeout = "500ms"); the command line wins over the environment, which
// wins over the file. An Argument is read only from the command line. Main's thread only.
#ifndef PHALANX_CLI_FLAGS_H_
#define PHALANX_CLI_FLAGS_H_

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace phalanx::runtime {

// The type and the target of a flag. The functions below make them. The target's value is the
// default; it must outlive the parsing, and is written only if all given texts are valid. A flag or
// positional whose type or name is FILE, PATH or PROGRAM takes names of files; the shell completes
// them.
struct FlagValue {
  // Shown in the help: "SIZE". Empty: a switch, which takes no value.
  std::string type;
  // The default as --help shows it; can be empty.
  std::string default_text;
  // The flag can be given several times. Except for Texts, also with several values separated by
  // commas.
  bool repeated = false;
  // All values, if there are only a few; the shell completes them.
  std::vector<std::string> choices = {};
  // Parses the given texts in order. An error names the text and the expected form.
  std::function<absl::Status(const std::vector<std::string>&)> parse;
};

FlagValue Switch(bool* target);
FlagValue Text(std::string* target, absl::string_view type = "TEXT");
FlagValue TextList(std::vector<std::string>* target, absl::string_view type);
// One text per flag or argument; a comma is part of it.
FlagValue Texts(std::vector<std::string>* target, absl::string_view type);
FlagValue Integer(int* target, int least, int most);
FlagValue Fraction(double* target);  // in [0, 1]
FlagValue ByteSize(uint64_t* target);
FlagValue ByteSizeList(std::vector<uint64_t>* target);
FlagValue ByteRate(double* target);
FlagValue TimeSpan(absl::Duration* target);
// "zone=a", repeated.
FlagValue Labels(std::map<std::string, std::string>* target);
// One of `choices`.
FlagValue Choice(std::string* target, std::vector<std::string> choices);

class Flags {
 public:
  virtual ~Flags() = default;

  // Sets the heading in --help for the flags that follow.
  virtual void Group(absl::string_view title) = 0;
  // `names`: "--name", or a short and a long one: "-n,--name".
  virtual void Setting(absl::string_view names, absl::string_view help, FlagValue value) = 0;
  virtual void Argument(absl::string_view names, absl::string_view help, FlagValue value) = 0;
  virtual void Positional(absl::string_view name, absl::string_view help, FlagValue value,
                          bool required = true) = 0;
};

// Returns "PHALANX_STALL_TIMEOUT" for "--stall-timeout" or "-s,--stall-timeout".
std::string EnvironmentName(absl::string_view names);

}  // namespace phalanx::runtime

#endif  // PHALANX_CLI_FLAGS_H_
