#include "src/cli/near_word.h"

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"

namespace phalanx::runtime {
namespace {

// No name is as long, and the cost of a comparison is the product of both lengths.
constexpr size_t kLongest = 64;

// Returns the number of letters to add, remove, replace or swap with their neighbour.
size_t Distance(absl::string_view a, absl::string_view b) {
  std::vector<std::vector<size_t>> least(a.size() + 1, std::vector<size_t>(b.size() + 1));
  for (size_t i = 0; i <= a.size(); ++i) {
    for (size_t j = 0; j <= b.size(); ++j) {
      if (i == 0 || j == 0) {
        least[i][j] = i + j;
        continue;
      }
      least[i][j] = std::min({least[i - 1][j] + 1, least[i][j - 1] + 1,
                              least[i - 1][j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1)});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        least[i][j] = std::min(least[i][j], least[i - 2][j - 2] + 1);
      }
    }
  }
  return least[a.size()][b.size()];
}

}  // namespace

std::string DidYouMean(absl::string_view text, const std::set<std::string>& words) {
  const std::string* nearest = nullptr;
  size_t nearest_distance = 0;
  for (const std::string& word : words) {
    if (text.size() > kLongest) break;
    const size_t distance = Distance(text, word);
    if (distance > std::max<size_t>(word.size() / 3, 1)) continue;
    if (nearest != nullptr && distance >= nearest_distance) continue;
    nearest = &word;
    nearest_distance = distance;
  }
  return nearest == nullptr ? "" : absl::StrCat(", did you mean \"", *nearest, "\"?");
}

}  // namespace phalanx::runtime
