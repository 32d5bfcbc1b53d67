// GroupLeaving: what keeps the members of a node that leave their group, and which other nodes this
// node keeps.
//
// Another node can still be in the last call that has ended here, and a new list of members voids
// what is under way to it. So members that leave stay in the list until all nodes have ended that
// call, too:
//
//   node a: Begin ──► asks all others ──► all have answered, or kLeavePatience ──► members can go
//   node b:           answers when the call has ended there
//
// Pure. Owned by a GroupCore.
#ifndef PHALANX_JOBS_GROUP_GROUP_LEAVING_H_
#define PHALANX_JOBS_GROUP_GROUP_LEAVING_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "src/common/ids/ids.h"
#include "src/common/time/instant.h"
#include "src/jobs/group/group_list.h"

namespace phalanx::jobs {

// How long members that leave stay for nodes that have not ended their last call.
inline constexpr absl::Duration kLeavePatience = absl::Seconds(30);

class GroupLeaving {
 public:
  // A member of this node leaves after call `last`. All that leave wait for the greatest one.
  // `waits`: the call waits for next lives, so they stay also for a member that has died in it.
  void Begin(uint64_t last, bool waits, Instant now);
  bool idle() const { return leavers_.empty() && askers_.empty(); }
  // Returns how many members can go; those that began first go first. `ended` and `settled`: the
  // last call that has ended here, and on all nodes.
  size_t TakeOver(const GroupList& list, uint64_t ended, uint64_t settled);
  // Returns how many stay no longer.
  size_t TakeLate(Instant now);
  // When to call TakeLate.
  Instant until() const { return leavers_.empty() ? Instant::Infinite() : leavers_.front(); }
  // The nodes to ask now, and about which call. Each is returned once.
  std::pair<std::vector<int>, uint64_t> TakeQuestions(const GroupList& list);
  // The link to this node was lost, and with it a question or its answer.
  void Forget(const NodeKey& node);
  void OnEnded(const NodeKey& node, uint64_t number);

  // Another node asks; TakeAnswers returns the nodes that are to be answered, with their calls.
  void OnAsked(const NodeKey& node, uint64_t number);
  std::vector<std::pair<int, uint64_t>> TakeAnswers(const GroupList& list, uint64_t ended);

 private:
  // When the patience of each member that leaves ends.
  std::deque<Instant> leavers_;
  uint64_t last_ = 0;
  bool waits_ = false;
  // Other nodes that were asked about call `last_`, and that have ended it.
  std::set<NodeKey> asked_;
  std::set<NodeKey> ended_;
  std::map<NodeKey, uint64_t> askers_;
};

}  // namespace phalanx::jobs

#endif  // PHALANX_JOBS_GROUP_GROUP_LEAVING_H_
