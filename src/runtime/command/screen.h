// Shows a text that changes: redrawn in place on a terminal, printed again and again elsewhere.
// Main's thread only.
#ifndef PHALANX_RUNTIME_COMMAND_SCREEN_H_
#define PHALANX_RUNTIME_COMMAND_SCREEN_H_

#include <termios.h>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace phalanx::runtime {

class Screen {
 public:
  // Redraws if standard output is a terminal; takes keys if standard input is one, too.
  Screen();
  // The last text stays; the terminal is as before.
  ~Screen();
  Screen(const Screen&) = delete;
  Screen& operator=(const Screen&) = delete;

  // On a terminal as many of the text's lines as there is room for.
  void Show(absl::string_view text);

  // Waits for a key or the end of `time`. False when the user wants to leave (q, Ctrl-C, Ctrl-D) or
  // nobody reads standard output any more.
  bool Wait(absl::Duration time);

 private:
  termios before_ = {};  // filled in by what initializes takes_keys_
  const bool redraws_;
  const bool takes_keys_;
  int lines_shown_ = 0;
};

}  // namespace phalanx::runtime

#endif  // PHALANX_RUNTIME_COMMAND_SCREEN_H_
