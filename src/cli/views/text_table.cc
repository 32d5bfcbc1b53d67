#include "src/cli/views/text_table.h"

#include <locale.h>
#include <wchar.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "src/cli/views/colour.h"

namespace phalanx::runtime {
namespace {

// Between two columns.
constexpr size_t kGap = 2;
// A narrower pane has ids of this many digits.
constexpr size_t kPaneOfWholeIds = 100;
constexpr size_t kShortId = 8;

// Takes the digits at the front, without leading zeros.
absl::string_view TakeDigits(absl::string_view& text) {
  size_t end = 0;
  while (end < text.size() && absl::ascii_isdigit(text[end])) ++end;
  absl::string_view digits = text.substr(0, end);
  text.remove_prefix(end);
  while (digits.size() > 1 && digits.front() == '0') digits.remove_prefix(1);
  return digits;
}

int Sign(int value) { return value < 0 ? -1 : value > 0 ? 1 : 0; }

void Pad(std::string& line, size_t cells) { line.append(cells, ' '); }

// Continuation bytes of UTF-8 are 10xxxxxx.
bool BeginsCharacter(char c) { return (static_cast<unsigned char>(c) & 0xc0) != 0x80; }

// Returns the bytes of the character at the front.
size_t LengthOfFirst(absl::string_view text) {
  size_t length = 1;
  while (length < text.size() && !BeginsCharacter(text[length])) ++length;
  return length;
}

// Returns the cells of one character: 2 for an ideograph or an emoji, 0 for an accent of its own.
int CellsOf(absl::string_view character) {
  const auto first = static_cast<unsigned char>(character.front());
  if (first < 0x80) return 1;
  // The widths of a locale of its own: that of the user can lack them.
  static const locale_t utf8 = newlocale(LC_CTYPE_MASK, "C.UTF-8", nullptr);
  if (utf8 == nullptr) return 1;
  // The first byte of n has n ones and a zero before its bits.
  uint32_t code = first & (0x7fu >> std::min<size_t>(character.size(), 7));
  for (const char c : character.substr(1))
    code = code << 6 | (static_cast<unsigned char>(c) & 0x3f);
  const locale_t before = uselocale(utf8);
  const int cells = wcwidth(static_cast<wchar_t>(code));
  uselocale(before);
  return cells < 0 ? 1 : cells;
}

// Returns the columns that a table shows: as many of its most important ones as fit.
std::vector<bool> ColumnsThatFit(const std::vector<std::string>& heading,
                                 std::vector<size_t> widths, const TableWidth& width) {
  std::vector<bool> shown(widths.size(), true);
  for (const std::string& name : width.dispensable) {
    size_t total = 0;
    for (const size_t column : widths) total += column == 0 ? 0 : column + kGap;
    if (total <= width.cells + kGap) break;
    for (size_t i = 0; i < heading.size(); ++i) {
      if (heading[i] != name && heading[i] != Painted(name, Colour::kBold, true)) continue;
      widths[i] = 0;
      shown[i] = false;
    }
  }
  return shown;
}

}  // namespace

size_t DisplayWidth(absl::string_view text) {
  size_t width = 0;
  while (!text.empty()) {
    if (const size_t length = ColourLength(text); length > 0) {
      text.remove_prefix(length);
      continue;
    }
    const size_t length = LengthOfFirst(text);
    width += static_cast<size_t>(CellsOf(text.substr(0, length)));
    text.remove_prefix(length);
  }
  return width;
}

std::string CutToWidth(absl::string_view text, size_t cells) {
  std::string cut;
  size_t width = 0;
  while (!text.empty()) {
    const size_t colour = ColourLength(text);
    const size_t length = colour > 0 ? colour : LengthOfFirst(text);
    if (colour == 0) width += static_cast<size_t>(CellsOf(text.substr(0, length)));
    // A colour takes no cell, and has to end although its last character is cut off.
    if (colour > 0 || width <= cells) absl::StrAppend(&cut, text.substr(0, length));
    text.remove_prefix(length);
  }
  return cut;
}

std::string Printable(absl::string_view text) {
  std::string result(text);
  // Replaced, not removed, so that the width stays and the operator sees that something was there.
  for (char& c : result) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = '?';
  }
  return result;
}

int CompareNaturally(absl::string_view a, absl::string_view b) {
  const absl::string_view whole_a = a, whole_b = b;
  while (!a.empty() && !b.empty()) {
    if (absl::ascii_isdigit(a.front()) && absl::ascii_isdigit(b.front())) {
      const absl::string_view x = TakeDigits(a), y = TakeDigits(b);
      // Without leading zeros the longer number is the larger one, however long both are.
      if (x.size() != y.size()) return x.size() < y.size() ? -1 : 1;
      if (const int order = x.compare(y); order != 0) return Sign(order);
      continue;
    }
    if (a.front() != b.front()) {
      return static_cast<unsigned char>(a.front()) < static_cast<unsigned char>(b.front()) ? -1 : 1;
    }
    a.remove_prefix(1);
    b.remove_prefix(1);
  }
  if (a.empty() != b.empty()) return a.empty() ? -1 : 1;
  // "n01" and "n1" are equal as numbers; the bytes make the order total.
  return Sign(whole_a.compare(whole_b));
}

std::string DrawBar(double fraction, int cells, bool unicode) {
  static constexpr const char* kEighths[] = {"", "▏", "▎", "▍", "▌", "▋", "▊", "▉"};
  // The negation also catches NaN.
  if (!(fraction > 0)) fraction = 0;
  if (fraction > 1) fraction = 1;
  const int steps = unicode ? 8 : 1;
  const int filled = static_cast<int>(fraction * cells * steps);
  std::string bar;
  for (int i = 0; i < filled / steps; ++i) absl::StrAppend(&bar, unicode ? "█" : "=");
  int width = filled / steps;
  if (unicode && filled % steps != 0) {
    absl::StrAppend(&bar, kEighths[filled % steps]);
    ++width;
  } else if (!unicode && fraction > 0 && width < cells) {
    // A bar of little progress must differ from an empty one.
    absl::StrAppend(&bar, ">");
    ++width;
  }
  Pad(bar, static_cast<size_t>(cells - width));
  return bar;
}

std::vector<std::string> Heading(std::vector<std::string> names, bool colours) {
  for (std::string& name : names) name = Painted(name, Colour::kBold, colours);
  return names;
}

std::string FittingId(absl::string_view id, size_t columns) {
  const std::string hex = absl::BytesToHexString(id);
  return columns < kPaneOfWholeIds ? hex.substr(0, kShortId) : hex;
}

std::string AlignColumns(const std::vector<std::vector<std::string>>& rows,
                         const std::vector<bool>& right, const TableWidth& width) {
  std::vector<size_t> widths;
  for (const auto& row : rows) {
    widths.resize(std::max(widths.size(), row.size()));
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], DisplayWidth(row[i]));
  }
  const std::vector<bool> shown =
      ColumnsThatFit(rows.empty() ? std::vector<std::string>() : rows[0], widths, width);
  std::string text;
  for (const auto& row : rows) {
    std::string line;
    bool first = true;
    for (size_t i = 0; i < row.size(); ++i) {
      // Most notes and rates are empty in small clusters, so their columns would only waste width.
      if (widths[i] == 0 || !shown[i]) continue;
      if (!std::exchange(first, false)) Pad(line, kGap);
      const size_t padding = widths[i] - DisplayWidth(row[i]);
      const bool flush_right = i < right.size() && right[i];
      if (flush_right) Pad(line, padding);
      line += row[i];
      if (!flush_right) Pad(line, padding);
    }
    absl::StrAppend(&text, absl::StripTrailingAsciiWhitespace(line), "\n");
  }
  return text;
}

}  // namespace phalanx::runtime
