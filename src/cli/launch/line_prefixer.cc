#include "src/cli/launch/line_prefixer.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace phalanx::runtime {

void LinePrefixer::Add(absl::string_view bytes, std::string* out) {
  while (!bytes.empty()) {
    // A line of exactly the limit is not followed by an empty one.
    if (line_.size() == kMaxLineBytes && bytes.front() != '\n') Pass(out);
    const size_t room = kMaxLineBytes - line_.size();
    const size_t newline = bytes.find('\n');
    const bool ends = newline != absl::string_view::npos && newline <= room;
    const size_t taken = ends ? newline + 1 : std::min(room, bytes.size());
    absl::StrAppend(&line_, bytes.substr(0, taken));
    bytes.remove_prefix(taken);
    if (ends) Pass(out);
  }
}

void LinePrefixer::End(std::string* out) {
  if (!line_.empty()) Pass(out);
}

void LinePrefixer::Pass(std::string* out) {
  const bool cut = line_.back() != '\n' && !prefix_.empty();
  absl::StrAppend(out, prefix_, line_, cut ? "\n" : "");
  line_.clear();
}

}  // namespace phalanx::runtime
