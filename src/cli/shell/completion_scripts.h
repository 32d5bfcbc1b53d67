// The scripts that make a shell complete the arguments of `phalanx`. They know no command and no
// flag: they ask `phalanx completion SHELL -- ARGUMENT...`, which prints a word and, after a tab,
// its help per line, or the line ":files". Pure; any thread.
#ifndef PHALANX_CLI_SHELL_COMPLETION_SCRIPTS_H_
#define PHALANX_CLI_SHELL_COMPLETION_SCRIPTS_H_

#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace phalanx::runtime {

// "bash", "fish", "zsh".
std::vector<std::string> CompletionShells();

// REQUIRES: `shell` is one of these.
absl::string_view CompletionScript(absl::string_view shell);

}  // namespace phalanx::runtime

#endif  // PHALANX_CLI_SHELL_COMPLETION_SCRIPTS_H_
