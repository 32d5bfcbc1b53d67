// Columns of text, and the small drawings that stand in them. Pure; any thread.
#ifndef PHALANX_RUNTIME_COMMAND_TEXT_TABLE_H_
#define PHALANX_RUNTIME_COMMAND_TEXT_TABLE_H_

#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace phalanx::runtime {

// Cells that a terminal gives to UTF-8 text of one cell per character.
size_t DisplayWidth(absl::string_view text);

// What a terminal may print of text from elsewhere: control characters become '?'.
std::string Printable(absl::string_view text);

// Negative, zero or positive; runs of digits compare as numbers: "n2" before "n10".
int CompareNaturally(absl::string_view a, absl::string_view b);

// "████▊     " for 0.48 of ten cells; "====>     " without unicode. `fraction` is cut to [0, 1].
std::string DrawBar(double fraction, int cells, bool unicode);

// Rows of cells in columns two blanks apart. Columns named in `right` are flushed right; columns
// that are empty in every row are left out. Blanks at the end of lines are cut; each line ends with
// "\n".
std::string AlignColumns(const std::vector<std::vector<std::string>>& rows,
                         const std::vector<bool>& right);

}  // namespace phalanx::runtime

#endif  // PHALANX_RUNTIME_COMMAND_TEXT_TABLE_H_
