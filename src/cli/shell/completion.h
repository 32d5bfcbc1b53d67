// The words that can stand at the end of a command line. Pure; any thread.
#ifndef PHALANX_CLI_SHELL_COMPLETION_H_
#define PHALANX_CLI_SHELL_COMPLETION_H_

#include <string>
#include <vector>

#include "src/cli/command_record.h"

namespace phalanx::runtime {

struct Completion {
  struct Word {
    std::string text;
    // Can be empty.
    std::string help;
  };
  // In the order of the help; all of them begin with the text to complete.
  std::vector<Word> words;
  // The shell completes the name of a file instead. `words` is empty.
  bool files = false;
};

// `arguments` does not include the program's name. The last one is the text to complete, which can
// be empty. "--op=su" is completed to "--op=sum".
Completion Complete(const std::vector<CommandRecord>& commands,
                    const std::vector<std::string>& arguments);

}  // namespace phalanx::runtime

#endif  // PHALANX_CLI_SHELL_COMPLETION_H_
