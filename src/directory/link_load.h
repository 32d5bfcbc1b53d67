// The number of pulls that share a node's link: now, and the most since a moment in the past. A
// measured rate is divided among that many pulls.
//
// Queries reach back to the beginning of a running pull only, so nothing is kept of an idle link.
//
// Pure. Owned by PullPlanner: one for the pulls that a node sends, one for those it receives.
#ifndef PHALANX_DIRECTORY_LINK_LOAD_H_
#define PHALANX_DIRECTORY_LINK_LOAD_H_

#include <utility>
#include <vector>

#include "src/common/instant.h"

namespace phalanx::directory {

class LinkLoad {
 public:
  // REQUIRES: a pull ends no more often than one begins.
  void Begin() { ++count_; }
  void End(Instant now);

  bool idle() const { return count_ == 0; }
  int count() const { return count_; }
  // REQUIRES: a pull has been running since then.
  int PeakSince(Instant since) const;

 private:
  int count_ = 0;
  // {until when, how many}: the counts that no later moment exceeds, falling with time.
  std::vector<std::pair<Instant, int>> peaks_;
};

}  // namespace phalanx::directory

#endif  // PHALANX_DIRECTORY_LINK_LOAD_H_
