// GroupLeaving: what keeps the members of a node that leave their group, and which other nodes this
// node keeps.
//
// Another node can still be in the last call that has ended here, and a new list of members voids
// what is under way to it. So members that leave stay in the list until all nodes have ended that
// call, too:
//
//   node a: Begin ──► asks all others ──► all have answered, or kLeavePatience ──► they can go
//   node b:           answers when the call has ended there
//
// Pure. Owned by a GroupCore.
#ifndef PHALANX_JOBS_GROUP_GROUP_LEAVING_H_
#define PHALANX_JOBS_GROUP_GROUP_LEAVING_H_

#include <cstdint>
#include <map>
#include <optional>
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
  // Members of this node leave after call `last`. Of several times the last one counts. `waits`:
  // the call waits for next lives, so they stay also for a member that has died in it.
  void Begin(uint64_t last, bool waits, Instant now) {
    own_ = {.last = last, .waits = waits, .until = now + kLeavePatience, .asked = {}, .ended = {}};
  }
  bool idle() const { return !own_.has_value() && askers_.empty(); }
  // Returns true once, when they can go. `settled`: the last call that has ended on all nodes.
  bool TakeOver(const GroupList& list, uint64_t settled);
  // They stay no longer.
  bool TakeLate(Instant now);
  // When to call TakeLate.
  Instant until() const { return own_.has_value() ? own_->until : Instant::Infinite(); }
  // The nodes to ask now, and about which call. Each is returned once.
  std::pair<std::vector<int>, uint64_t> TakeQuestions(const GroupList& list);
  // The link to this node was lost, and with it a question or its answer.
  void Forget(const NodeKey& node);
  void OnEnded(const NodeKey& node, uint64_t number);

  // Another node asks; TakeAnswers returns the nodes that are to be answered, with their calls.
  void OnAsked(const NodeKey& node, uint64_t number);
  std::vector<std::pair<int, uint64_t>> TakeAnswers(const GroupList& list, uint64_t ended);

 private:
  struct Own {
    uint64_t last = 0;
    bool waits = false;
    Instant until;
    std::set<NodeKey> asked;
    std::set<NodeKey> ended;
  };
  std::optional<Own> own_;
  std::map<NodeKey, uint64_t> askers_;
};

}  // namespace phalanx::jobs

#endif  // PHALANX_JOBS_GROUP_GROUP_LEAVING_H_
