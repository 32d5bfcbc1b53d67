// HeldAnswers: answers to calls of one group that members of this node do not get yet, because the
// node does not know whether they live (ShardLeases::Confirmed).
//
//   GroupDone ──Add──► held ──confirmed──────────────────► the answer
//                        ├────ended on all nodes─────────► the answer (VouchedCalls)
//                        ├────the life has ended─────────► Aborted
//                        └────the call's deadline passes─► DeadlineExceeded, or the error it had
//
// Pure; the control loop only. Owned by the GroupService, or by a test.
#ifndef PHALANX_JOBS_GROUP_SERVICE_HELD_ANSWERS_H_
#define PHALANX_JOBS_GROUP_SERVICE_HELD_ANSWERS_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "src/common/ids/ids.h"
#include "src/common/time/instant.h"
#include "src/jobs/group/group_core.h"
#include "src/jobs/members/group_view.h"

namespace phalanx::jobs {

// Of one member. An answer beyond these is ResourceExhausted instead, and is not held.
inline constexpr size_t kMaxHeldAnswers = kMaxOutstandingCalls;

class HeldAnswers {
 public:
  // `name` is the group's, for messages.
  HeldAnswers(const NodeKey& self, std::string name) : self_(self), name_(std::move(name)) {}

  // Whether the answer says what became of the call, which another list of members can have decided
  // otherwise. The end of a life, a passed deadline and a cancelled question are true in any case.
  static bool Waits(const absl::Status& status) {
    return !absl::IsAborted(status) && !absl::IsDeadlineExceeded(status) &&
           !absl::IsCancelled(status);
  }
  // Returns what the member gets at once if there is no room.
  absl::Status Add(GroupDone done, int rank, uint64_t life, Instant deadline);

  // Members that are not live on this node, as the view says, get no answer.
  void OnView(const GroupView& view);
  // The member leaves.
  void EndMember(int rank);

  // What the members get now, in the order of Add: everything if the node is `confirmed`, otherwise
  // the answers that wait no longer. The calls up to `vouched` have ended on all nodes.
  std::vector<GroupDone> Take(bool confirmed, uint64_t vouched, Instant now);

  bool empty() const { return held_.empty(); }
  // The last call of which an answer is held; 0: there is none.
  uint64_t last() const { return last_; }
  // The next deadline, or a time before it.
  Instant NextTick() const { return next_tick_; }

 private:
  struct Held {
    GroupDone done;
    int rank = 0;
    uint64_t life = 0;
    Instant deadline;
    bool over = false;
  };

  static constexpr uint64_t kNoCall = ~uint64_t{0};

  void End(Held& held);
  void Keep(Held held);

  // Constant after construction.
  const NodeKey self_;
  const std::string name_;

  std::vector<Held> held_;
  bool any_over_ = false;
  uint64_t first_ = kNoCall;  // of which an answer is held
  uint64_t last_ = 0;
  Instant next_tick_ = Instant::Infinite();
};

}  // namespace phalanx::jobs

#endif  // PHALANX_JOBS_GROUP_SERVICE_HELD_ANSWERS_H_
