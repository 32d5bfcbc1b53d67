#include "src/directory/pulls/link_load.h"

#include <algorithm>

namespace phalanx::directory {

void LinkLoad::End(Instant now) {
  // A query never needs an earlier period with no more pulls than this one, which ends later.
  while (!peaks_.empty() && peaks_.back().second <= count_) peaks_.pop_back();
  peaks_.emplace_back(now, count_);
  if (--count_ == 0) peaks_.clear();
}

int LinkLoad::PeakSince(Instant since) const {
  // The first period that ended after `since` has the most pulls of all later ones.
  const auto peak = std::lower_bound(
      peaks_.begin(), peaks_.end(), since,
      [](const std::pair<Instant, int>& entry, Instant at) { return entry.first < at; });
  return peak == peaks_.end() ? count_ : std::max(count_, peak->second);
}

}  // namespace phalanx::directory
