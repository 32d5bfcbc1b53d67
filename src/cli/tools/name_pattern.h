// Patterns of names, for `ls --name` and `rm --name`. Pure functions; any thread.
//
// `*` stands for any characters, also none and "/", and `?` for one character. Every other
// character stands for itself, so that a name like "grad[3]" needs no escapes.
#ifndef PHALANX_CLI_TOOLS_NAME_PATTERN_H_
#define PHALANX_CLI_TOOLS_NAME_PATTERN_H_

#include "absl/strings/string_view.h"

namespace phalanx::runtime {

// Whether the text has `*` or `?`.
bool IsPattern(absl::string_view text);
// Both are UTF-8. Takes time in proportion to the product of their sizes at most.
bool MatchesPattern(absl::string_view name, absl::string_view pattern);

}  // namespace phalanx::runtime

#endif  // PHALANX_CLI_TOOLS_NAME_PATTERN_H_
