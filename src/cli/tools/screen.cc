#include "src/cli/tools/screen.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "src/cli/views/text_table.h"

namespace phalanx::runtime {
namespace {

// Returns the first lines, cut to the size; each clears the rest of the line that it replaces.
std::string LinesFor(absl::string_view text, const Screen::Size& size, int& lines) {
  std::string result;
  for (lines = 0; lines < size.rows && !text.empty(); ++lines) {
    const size_t end = std::min(text.find('\n'), text.size());
    const size_t columns = static_cast<size_t>(size.columns);
    absl::StrAppend(&result, CutToWidth(text.substr(0, end), columns), "\x1b[K\n");
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return result;
}

// With ISIG off, Ctrl-C and Ctrl-D arrive as the characters 3 and 4.
bool WantsToLeave(char key) { return key == 'q' || key == 'Q' || key == 3 || key == 4; }

// Installed so that the signal ends poll.
void OnResize(int) {}

}  // namespace

Screen::Screen()
    : redraws_(isatty(STDOUT_FILENO) == 1),
      takes_keys_(redraws_ && isatty(STDIN_FILENO) == 1 && tcgetattr(STDIN_FILENO, &before_) == 0) {
  if (redraws_) {
    struct sigaction action = {};
    action.sa_handler = OnResize;
    sigaction(SIGWINCH, &action, &resize_before_);
  }
  if (!takes_keys_) return;
  termios raw = before_;
  // Ctrl-C arrives as a key, so that the terminal is restored on every way out.
  raw.c_lflag &= ~static_cast<tcflag_t>(ICANON | ECHO | ISIG);
  tcsetattr(STDIN_FILENO, TCSANOW, &raw);
}

Screen::~Screen() {
  if (takes_keys_) tcsetattr(STDIN_FILENO, TCSANOW, &before_);
  if (redraws_) sigaction(SIGWINCH, &resize_before_, nullptr);
}

Screen::Size Screen::size() const {
  winsize size = {};
  const bool known = ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0;
  // One row less than the terminal has, or the last newline would scroll the text; and one column,
  // because some terminals wrap a line that fills the last one.
  return {std::max(known && size.ws_row > 0 ? size.ws_row - 1 : 23, 1),
          std::max(known && size.ws_col > 0 ? size.ws_col - 1 : 79, 1)};
}

void Screen::Show(absl::string_view text) {
  std::string output(text);
  if (redraws_) {
    const Size now = size();
    // A terminal of another width has wrapped the old lines, so that their number is unknown.
    const bool resized =
        lines_shown_ > 0 && (now.rows != shown_size_.rows || now.columns != shown_size_.columns);
    int lines = 0;
    const std::string drawn = LinesFor(text, now, lines);
    output = resized            ? "\x1b[H\x1b[2J"
             : lines_shown_ > 0 ? absl::StrCat("\x1b[", lines_shown_, "A")
                                : "";
    absl::StrAppend(&output, drawn, "\x1b[J");
    lines_shown_ = lines;
    shown_size_ = now;
  }
  fwrite(output.data(), 1, output.size(), stdout);
  fflush(stdout);
}

bool Screen::Wait(absl::Duration time) {
  key_ = 0;
  // No events on the output: poll reports errors anyway, and so the end of a pipe's reader.
  pollfd watched[2] = {{STDOUT_FILENO, 0, 0}, {STDIN_FILENO, POLLIN, 0}};
  const int milliseconds =
      static_cast<int>(std::clamp<int64_t>(absl::ToInt64Milliseconds(time), 0, int64_t{1} << 30));
  const int ready = poll(watched, takes_keys_ ? 2 : 1, milliseconds);
  // A signal ends poll early; the caller looks again.
  if (ready < 0) return errno == EINTR;
  if ((watched[0].revents & (POLLERR | POLLHUP)) != 0 || ferror(stdout) != 0) return false;
  if ((watched[1].revents & (POLLIN | POLLHUP)) == 0) return true;
  return read(STDIN_FILENO, &key_, 1) == 1 && !WantsToLeave(key_);
}

}  // namespace phalanx::runtime
