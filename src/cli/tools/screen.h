// Shows a text that changes: redraws it in place on a terminal, and prints it again and again
// elsewhere.
// Main's thread only.
#ifndef PHALANX_CLI_TOOLS_SCREEN_H_
#define PHALANX_CLI_TOOLS_SCREEN_H_

#include <termios.h>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace phalanx::runtime {

class Screen {
 public:
  // Redraws if standard output is a terminal; also reads keys if standard input is a terminal.
  Screen();
  // Leaves the last text, and restores the terminal.
  ~Screen();
  Screen(const Screen&) = delete;
  Screen& operator=(const Screen&) = delete;

  // On a terminal, shows as many of the text's lines as fit.
  void Show(absl::string_view text);

  // Waits for a key or until `time` has passed. Returns false if the user wants to leave (q,
  // Ctrl-C, Ctrl-D) or standard output is closed.
  bool Wait(absl::Duration time);

 private:
  termios before_ = {};  // set when takes_keys_ is initialized
  const bool redraws_;
  const bool takes_keys_;
  int lines_shown_ = 0;
};

}  // namespace phalanx::runtime

#endif  // PHALANX_CLI_TOOLS_SCREEN_H_
