// BarrierMember: the barriers of one task: in which it waits, and which it has seen end. It asks
// server 0 (BarrierKeeper), again and again until it has an answer, and shows each next life of
// server 0 all that it knows.
//
// Pure: takes events, returns messages. Belongs to Barriers, or a test. One thread at a time.
#ifndef PHALANX_CLIENT_PS_BARRIERS_BARRIER_MEMBER_H_
#define PHALANX_CLIENT_PS_BARRIERS_BARRIER_MEMBER_H_

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "phalanx/member_state.h"
#include "phalanx/ps_barrier.h"
#include "src/client/ps/barriers/barrier_wire.h"

namespace phalanx::ps::internal {

class BarrierMember {
 public:
  // To server 0.
  struct Send {
    uint64_t life;
    std::string bytes;
  };
  using Ticket = uint64_t;  // from 1
  struct Ended {
    Ticket ticket;
    absl::Status status;
  };

  // `world`: of the task's role.
  explicit BarrierMember(int world) : world_(static_cast<uint32_t>(world)) {}

  // The task comes to a barrier: the given one, or the next one of the group. REQUIRES: `epoch` is
  // at most kMaxBarrierEpoch.
  Ticket Begin(BarrierGroup group, std::optional<uint64_t> epoch);
  // The call is given up. The task has come to the barrier all the same; if the call was the last
  // one of its group, the next one without a number is for the same barrier.
  void Forget(Ticket ticket);

  void OnKeeper(MemberState state, uint64_t life);
  void OnMessage(uint64_t life, absl::string_view bytes);
  // A while later.
  void Tick();

  // Tick is to be called.
  bool waiting() const;
  // Which barrier it is, and for which tasks it waits, as a text for errors. REQUIRES: it has not
  // ended.
  std::string WaitsFor(Ticket ticket) const;
  std::vector<Send> TakeSends() { return std::exchange(sends_, {}); }
  std::vector<Ended> TakeEnded() { return std::exchange(ended_, {}); }

 private:
  struct OfGroup {
    uint64_t next = 0;     // the number of the next barrier without one
    uint64_t arrived = 0;  // the last stage of the task, and the last one that it saw end
    uint64_t ended = 0;
    std::string missing = {};  // as the keeper has last said
    // Nothing has come of the keeper's present life, so it may not know what this task knows.
    bool unanswered = false;
  };
  struct Call {
    BarrierGroup group;
    uint64_t stage;
  };

  static std::string NameOf(const Call& call);
  void Show(BarrierGroup group);
  void End(std::map<Ticket, Call>::iterator call, const absl::Status& status);
  void EndWithKeeper(std::map<Ticket, Call>::iterator call);
  OfGroup& Of(BarrierGroup group) { return groups_[static_cast<size_t>(group)]; }

  const uint32_t world_;
  std::optional<uint64_t> keeper_;  // its life
  bool keeper_live_ = false;
  bool keeper_lived_ = false;  // since this task has begun
  bool keeper_left_ = false;   // in this run of the job
  std::array<OfGroup, kBarrierGroups> groups_;
  std::map<Ticket, Call> calls_;
  Ticket next_ = 1;
  std::vector<Ended> ended_;
  std::vector<Send> sends_;
};

}  // namespace phalanx::ps::internal

#endif  // PHALANX_CLIENT_PS_BARRIERS_BARRIER_MEMBER_H_
