#include "src/runtime/command/screen.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"

namespace phalanx::runtime {
namespace {

int TerminalRows() {
  winsize size = {};
  if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_row == 0) return 24;
  return size.ws_row;
}

// The first `rows` lines of it, each clearing what is left of the line before it.
std::string LinesFor(absl::string_view text, int rows, int& lines) {
  std::string result;
  for (lines = 0; lines < rows && !text.empty(); ++lines) {
    const size_t end = std::min(text.find('\n'), text.size());
    absl::StrAppend(&result, text.substr(0, end), "\x1b[K\n");
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return result;
}

bool WantsToLeave(char key) { return key == 'q' || key == 'Q' || key == 3 || key == 4; }

}  // namespace

Screen::Screen()
    : redraws_(isatty(STDOUT_FILENO) == 1),
      takes_keys_(redraws_ && isatty(STDIN_FILENO) == 1 && tcgetattr(STDIN_FILENO, &before_) == 0) {
  if (!takes_keys_) return;
  termios raw = before_;
  // Ctrl-C comes as a key, so that the terminal is put back whoever asks to leave.
  raw.c_lflag &= ~static_cast<tcflag_t>(ICANON | ECHO | ISIG);
  tcsetattr(STDIN_FILENO, TCSANOW, &raw);
}

Screen::~Screen() {
  if (takes_keys_) tcsetattr(STDIN_FILENO, TCSANOW, &before_);
}

void Screen::Show(absl::string_view text) {
  std::string output(text);
  if (redraws_) {
    int lines = 0;
    const std::string drawn = LinesFor(text, TerminalRows() - 1, lines);
    output = lines_shown_ == 0 ? "" : absl::StrCat("\x1b[", lines_shown_, "A");
    absl::StrAppend(&output, drawn, "\x1b[J");
    lines_shown_ = lines;
  }
  fwrite(output.data(), 1, output.size(), stdout);
  fflush(stdout);
}

bool Screen::Wait(absl::Duration time) {
  pollfd watched[2] = {{STDOUT_FILENO, 0, 0}, {STDIN_FILENO, POLLIN, 0}};
  const int milliseconds =
      static_cast<int>(std::clamp<int64_t>(absl::ToInt64Milliseconds(time), 0, int64_t{1} << 30));
  const int ready = poll(watched, takes_keys_ ? 2 : 1, milliseconds);
  if (ready < 0) return errno == EINTR;
  if ((watched[0].revents & (POLLERR | POLLHUP)) != 0 || ferror(stdout) != 0) return false;
  if ((watched[1].revents & (POLLIN | POLLHUP)) == 0) return true;
  char key = 0;
  return read(STDIN_FILENO, &key, 1) == 1 && !WantsToLeave(key);
}

}  // namespace phalanx::runtime
