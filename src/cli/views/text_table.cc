#include "src/cli/views/text_table.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"

namespace phalanx::runtime {
namespace {

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

}  // namespace

size_t DisplayWidth(absl::string_view text) {
  // Continuation bytes of UTF-8 are 10xxxxxx.
  return static_cast<size_t>(std::count_if(text.begin(), text.end(), [](char c) {
    return (static_cast<unsigned char>(c) & 0xc0) != 0x80;
  }));
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

std::string AlignColumns(const std::vector<std::vector<std::string>>& rows,
                         const std::vector<bool>& right) {
  std::vector<size_t> widths;
  for (const auto& row : rows) {
    widths.resize(std::max(widths.size(), row.size()));
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], DisplayWidth(row[i]));
  }
  std::string text;
  for (const auto& row : rows) {
    std::string line;
    bool first = true;
    for (size_t i = 0; i < row.size(); ++i) {
      // Most notes and rates are empty in small clusters, so their columns would only waste width.
      if (widths[i] == 0) continue;
      if (!std::exchange(first, false)) line += "  ";
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
