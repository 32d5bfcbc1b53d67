// How many pulls share a node's link, now and at most since some moment: what a rate that was
// measured meanwhile says of the link depends on it.
//
// Only a pull's own life is ever asked about, so that nothing is kept of a link once it idles.
//
// Pure. Owned by the BroadcastPlanner: one for what a node sends, one for what it receives.
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
  // REQUIRES: some pull has gone on since then.
  int PeakSince(Instant since) const;

 private:
  int count_ = 0;
  // Until when there were so many, the fewer the later; what no later moment exceeds.
  std::vector<std::pair<Instant, int>> peaks_;
};

}  // namespace phalanx::directory

#endif  // PHALANX_DIRECTORY_LINK_LOAD_H_
