// A line on the terminal that shows the progress of a transfer. Main's thread only.
#ifndef PHALANX_CLI_VIEWS_PROGRESS_BAR_H_
#define PHALANX_CLI_VIEWS_PROGRESS_BAR_H_

#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "src/common/time/instant.h"

namespace phalanx::runtime {

// "put data.bin  ████▊      48 %  45.9 MiB of 95.4 MiB  117 MB/s  1.20 s left", cut to `columns`.
// Without a rate in the first tenth of a second, which says nothing about the rest.
std::string RenderProgress(absl::string_view label, uint64_t done, uint64_t total,
                           absl::Duration elapsed, int columns);

// "30.0 MiB in 1.91 s, 16.5 MB/s"; without a rate for no bytes.
std::string RenderSummary(uint64_t bytes, absl::Duration elapsed);

// Draws on stderr, the progress at most ten times a second, if stderr is a terminal; otherwise does
// nothing.
class ProgressBar {
 public:
  // If `enabled` is false, does nothing either.
  ProgressBar(std::string label, bool enabled);
  ~ProgressBar() { Clear(); }
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;

  // Whether this draws.
  bool shown() const { return enabled_; }
  void Update(uint64_t done, uint64_t total);
  // Shows `text` in place of the bar until the next Update.
  void Say(absl::string_view text);
  // Clears the line. REQUIRES: called before anything else is written to the terminal.
  void Clear();
  absl::Duration elapsed() const;

 private:
  void Draw(const std::string& line);

  const std::string label_;
  const bool enabled_;
  const Instant start_;
  Instant next_draw_;
  bool drawn_ = false;
};

}  // namespace phalanx::runtime

#endif  // PHALANX_CLI_VIEWS_PROGRESS_BAR_H_
