// Columns of text, and the small bars in them. Pure; any thread.
#ifndef PHALANX_CLI_VIEWS_TEXT_TABLE_H_
#define PHALANX_CLI_VIEWS_TEXT_TABLE_H_

#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace phalanx::runtime {

// The number of terminal cells of UTF-8 text with one cell per character.
size_t DisplayWidth(absl::string_view text);

// Makes text from other hosts safe for a terminal: control characters become '?'.
std::string Printable(absl::string_view text);

// Returns a negative number, zero or a positive number. Runs of digits compare as numbers: "n2"
// before "n10".
int CompareNaturally(absl::string_view a, absl::string_view b);

// "████▊     " for 0.48 of ten cells; "====>     " without unicode. `fraction` is clamped to [0,
// 1].
std::string DrawBar(double fraction, int cells, bool unicode);

// Rows of cells in columns two blanks apart. Columns marked in `right` are aligned right; columns
// that are empty in every row are omitted. Blanks at the end of lines are removed; each line ends
// with "\n".
std::string AlignColumns(const std::vector<std::vector<std::string>>& rows,
                         const std::vector<bool>& right);

}  // namespace phalanx::runtime

#endif  // PHALANX_CLI_VIEWS_TEXT_TABLE_H_
