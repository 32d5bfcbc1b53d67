// The number of pulls that share a node's link, now and at most since a given moment. A rate that
// was measured meanwhile can only be interpreted with this number.
//
// Queries only cover the life of a running pull, so an idle link keeps no history.
//
// Pure. Owned by PullPlanner: one for the pulls that a node sends, one for those it receives.
#ifndef PHALANX_DIRECTORY_PULLS_LINK_LOAD_H_
#define PHALANX_DIRECTORY_PULLS_LINK_LOAD_H_

#include <utility>
#include <vector>

#include "src/common/time/instant.h"

namespace phalanx::directory {

class LinkLoad {
 public:
  // REQUIRES: at most one End per Begin.
  void Begin() { ++count_; }
  void End(Instant now);

  bool idle() const { return count_ == 0; }
  int count() const { return count_; }
  // REQUIRES: some pull has run since then.
  int PeakSince(Instant since) const;

 private:
  int count_ = 0;
  // Pairs of (the end of a period, the pulls in it), with fewer pulls the later they end. A period
  // that a later one equals or exceeds is dropped.
  std::vector<std::pair<Instant, int>> peaks_;
};

}  // namespace phalanx::directory

#endif  // PHALANX_DIRECTORY_PULLS_LINK_LOAD_H_
