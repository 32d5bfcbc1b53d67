#include "src/cli/tools/name_pattern.h"

#include <cstddef>

namespace phalanx::runtime {
namespace {

// Returns where the character after the one at `at` begins: UTF-8 continues with 10xxxxxx.
size_t Next(absl::string_view text, size_t at) {
  ++at;
  while (at < text.size() && (static_cast<unsigned char>(text[at]) & 0xc0) == 0x80) ++at;
  return at;
}

}  // namespace

bool IsPattern(absl::string_view text) {
  return text.find_first_of("*?") != absl::string_view::npos;
}

bool MatchesPattern(absl::string_view name, absl::string_view pattern) {
  size_t at = 0;
  size_t in_pattern = 0;
  // The last `*`, and where the rest of the pattern is tried next. An earlier `*` need not be tried
  // again: whatever it can skip, the last one can skip as well.
  size_t star = absl::string_view::npos;
  size_t retry = 0;
  while (at < name.size()) {
    const bool more = in_pattern < pattern.size();
    if (more && pattern[in_pattern] == '*') {
      star = in_pattern++;
      retry = at;
    } else if (more && pattern[in_pattern] == '?') {
      ++in_pattern;
      at = Next(name, at);
    } else if (more && pattern[in_pattern] == name[at]) {
      ++in_pattern;
      ++at;
    } else if (star != absl::string_view::npos) {
      in_pattern = star + 1;
      at = retry = Next(name, retry);
    } else {
      return false;
    }
  }
  return pattern.find_first_not_of('*', in_pattern) == absl::string_view::npos;
}

}  // namespace phalanx::runtime
