#include "src/cli/views/progress_bar.h"

#include <stdio.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "src/cli/units.h"
#include "src/cli/views/text_table.h"
#include "src/common/time/clock.h"

namespace phalanx::runtime {
namespace {

constexpr absl::Duration kDrawEvery = absl::Milliseconds(100);
constexpr int kBarCells = 24;

int TerminalColumns() {
  // No terminal answers in a pipe; 80 columns is the usual width.
  winsize size = {};
  if (ioctl(STDERR_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return 80;
  return size.ws_col;
}

}  // namespace

std::string RenderProgress(absl::string_view label, uint64_t done, uint64_t total,
                           absl::Duration elapsed, int columns) {
  // An empty object is complete at once.
  const double fraction = total == 0 ? 1 : static_cast<double>(done) / static_cast<double>(total);
  const double seconds = absl::ToDoubleSeconds(elapsed);
  const double rate = elapsed >= kDrawEvery ? static_cast<double>(done) / seconds : 0;
  std::string line = absl::StrCat(Printable(label), "  ", DrawBar(fraction, kBarCells, true),
                                  absl::StrFormat(" %3d %%", static_cast<int>(fraction * 100)),
                                  "  ", HumanBytes(done), " of ", HumanBytes(total));
  if (rate > 0) absl::StrAppend(&line, "  ", HumanRate(rate));
  if (rate > 0 && done < total) {
    const double left = static_cast<double>(total - done) / rate;
    absl::StrAppend(&line, "  ", HumanDuration(absl::Seconds(left)), " left");
  }
  return CutToWidth(line, static_cast<size_t>(std::max(columns, 1)));
}

std::string RenderSummary(uint64_t bytes, absl::Duration elapsed) {
  const std::string text = absl::StrCat(HumanBytes(bytes), " in ", HumanDuration(elapsed));
  const double rate = static_cast<double>(bytes) / absl::ToDoubleSeconds(elapsed);
  return bytes == 0 ? text : absl::StrCat(text, ", ", HumanRate(rate));
}

ProgressBar::ProgressBar(std::string label, bool enabled)
    : label_(std::move(label)),
      enabled_(enabled && isatty(STDERR_FILENO) == 1),
      start_(MonotonicNow()) {}

void ProgressBar::Update(uint64_t done, uint64_t total) {
  if (!enabled_) return;
  const Instant now = MonotonicNow();
  // Drawing for every chunk would cost more than the transfer of small chunks.
  if (now < next_draw_) return;
  next_draw_ = now + kDrawEvery;
  // One column less: a terminal can wrap a line that fills its last column.
  Draw(RenderProgress(label_, done, total, elapsed(), TerminalColumns() - 1));
}

void ProgressBar::Say(absl::string_view text) {
  if (!enabled_) return;
  Draw(CutToWidth(absl::StrCat(Printable(label_), "  ", Printable(text)),
                  static_cast<size_t>(TerminalColumns() - 1)));
  // The next Update replaces the text without a delay.
  next_draw_ = Instant();
}

void ProgressBar::Clear() {
  if (drawn_) Draw("");
}

absl::Duration ProgressBar::elapsed() const { return MonotonicNow() - start_; }

void ProgressBar::Draw(const std::string& line) {
  // Moves to the start of the line, writes the text, and clears the rest of the last line.
  absl::FPrintF(stderr, "\r%s\x1b[K", line);
  fflush(stderr);
  drawn_ = !line.empty();
}

}  // namespace phalanx::runtime
