// Shows a text that changes: redraws it in place on a terminal, and prints it again and again
// elsewhere.
// Main's thread only.
#ifndef PHALANX_CLI_TOOLS_SCREEN_H_
#define PHALANX_CLI_TOOLS_SCREEN_H_

#include <signal.h>
#include <termios.h>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace phalanx::runtime {

class Screen {
 public:
  // The rows and columns of a terminal that Show can use.
  struct Size {
    int rows = 0;
    int columns = 0;
  };

  // Redraws if standard output is a terminal; also reads keys if standard input is a terminal.
  Screen();
  // Leaves the last text, and restores the terminal.
  ~Screen();
  Screen(const Screen&) = delete;
  Screen& operator=(const Screen&) = delete;

  // Whether standard output is a terminal.
  bool is_terminal() const { return redraws_; }
  // REQUIRES: is_terminal(). Changes if the user resizes the terminal.
  Size size() const;

  // On a terminal, shows as many of the text's lines as fit, and of each line as much as fits.
  void Show(absl::string_view text);

  // Waits for a key, for a new size of the terminal, or until `time` has passed. Returns false if
  // the user wants to leave (q, Ctrl-C, Ctrl-D) or standard output is closed.
  bool Wait(absl::Duration time);
  // The key that ended the last Wait; 0 if none did.
  char key() const { return key_; }

 private:
  termios before_ = {};  // set when takes_keys_ is initialized
  const bool redraws_;
  const bool takes_keys_;
  struct sigaction resize_before_ = {};
  int lines_shown_ = 0;
  Size shown_size_;
  char key_ = 0;
};

}  // namespace phalanx::runtime

#endif  // PHALANX_CLI_TOOLS_SCREEN_H_
