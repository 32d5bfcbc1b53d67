// Columns of text, and the small bars in them. Pure; any thread.
#ifndef PHALANX_CLI_VIEWS_TEXT_TABLE_H_
#define PHALANX_CLI_VIEWS_TEXT_TABLE_H_

#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace phalanx::runtime {

// The number of terminal cells of UTF-8 text. Colours take none.
size_t DisplayWidth(absl::string_view text);

// Returns the characters of the first `cells` cells, and every colour.
std::string CutToWidth(absl::string_view text, size_t cells);

// Makes text from other hosts safe for a terminal: control characters become '?'.
std::string Printable(absl::string_view text);

// Returns a negative number, zero or a positive number. Runs of digits compare as numbers: "n2"
// before "n10".
int CompareNaturally(absl::string_view a, absl::string_view b);

// "████▊     " for 0.48 of ten cells; "====>     " without unicode. `fraction` is clamped to [0,
// 1].
std::string DrawBar(double fraction, int cells, bool unicode);

// The first row of a table, in bold.
std::vector<std::string> Heading(std::vector<std::string> names, bool colours);

// How a table becomes narrower: it omits the columns with these headings in this order, as many as
// needed for lines of `cells`.
struct TableWidth {
  size_t cells = size_t{1} << 30;
  std::vector<std::string> dispensable = {};
};

// Returns the hexadecimal digits of a binary id, only the first ones for a narrow pane.
std::string FittingId(absl::string_view id, size_t columns);

// Rows of cells in columns two blanks apart. Columns marked in `right` are aligned right; columns
// that are empty in every row are omitted. Blanks at the end of lines are removed; each line ends
// with "\n".
std::string AlignColumns(const std::vector<std::vector<std::string>>& rows,
                         const std::vector<bool>& right, const TableWidth& width = {});

}  // namespace phalanx::runtime

#endif  // PHALANX_CLI_VIEWS_TEXT_TABLE_H_
