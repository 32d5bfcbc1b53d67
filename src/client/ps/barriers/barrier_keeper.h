// BarrierKeeper: how far each task of a job has come in the barriers of each group, and which
// barriers have ended. Server 0 has it.
//
//   worker 2 ── Arrival(stage, last one that it saw end) ──► server 0 ── Verdict ──► all that wait
//
// 1. A stage ends when all tasks of the group for which it waits have come to it or to a later one.
//    It has ended for good then: a task that comes to it later, in its next life, goes on at once.
// 2. An arrival is that of a life. When the life dies, it is void: a stage that had not ended waits
//    for the next life, which comes to it again. So a death releases no task early, and a task that
//    is started again does not count twice.
// 3. A task that has left the job is not waited for. A worker that has died is, unless the tables
//    say otherwise (OnLoss): with kDrop it is not, and with kFail the calls of all that wait for
//    it fail.
// 4. What has ended outlives the keeper: each task has seen it, and says so to the keeper's next
//    life (BarrierMember), which knows nothing.
// 5. A task that had ended before the keeper's life began may have been of an earlier run of the
//    job. Until Resolve it is waited for.
// 6. Any message can be lost: a task that waits sends its Arrival again and again, and each is
// answered.
//
// Pure: takes events, returns messages. Belongs to Barriers, or a test. One thread at a time.
#ifndef PHALANX_CLIENT_PS_BARRIERS_BARRIER_KEEPER_H_
#define PHALANX_CLIENT_PS_BARRIERS_BARRIER_KEEPER_H_

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "phalanx/member_state.h"
#include "phalanx/ps_barrier.h"
#include "phalanx/ps_table.h"
#include "src/client/ps/barriers/barrier_wire.h"

namespace phalanx::ps::internal {

// A server or a worker.
struct BarrierTask {
  bool worker = false;
  int rank = 0;
  friend auto operator<=>(const BarrierTask&, const BarrierTask&) = default;
};

// Whether barriers of the group wait for such tasks.
bool HasTask(BarrierGroup group, bool worker);

class BarrierKeeper {
 public:
  struct Send {
    BarrierTask to;
    uint64_t life;
    std::string bytes;
  };

  // Server 0 of so many, in this life.
  BarrierKeeper(int servers, uint64_t life);

  // How many there are. Until this, or a message of one of them, no barrier with workers ends.
  void SetWorkers(int workers);
  // What barriers do when a worker dies; kWait until this.
  void SetOnLoss(OnLoss on_loss);
  // Those that had ended when this life began are of an earlier run of the job, and their tasks
  // have not joined this one; or they are of this run. Once.
  void Resolve(bool other_run);
  bool resolved() const { return resolved_; }

  void OnMember(BarrierTask task, MemberState state, uint64_t life);
  void OnMessage(BarrierTask task, uint64_t life, absl::string_view bytes);

  std::vector<Send> TakeSends() { return std::exchange(sends_, {}); }
  // How often it has looked at all tasks of a group, for tests.
  uint64_t walks() const { return walks_; }
  // Lines of barriers in which tasks wait; empty: there are none.
  std::string Describe() const;

 private:
  using Stages = std::array<uint64_t, kBarrierGroups>;  // by group
  struct Peer {
    std::optional<uint64_t> life = {};
    MemberState state = MemberState::kAbsent;
    // It has ended, has not lived since the keeper began, and Resolve has not been called.
    bool old = false;
    Stages arrived = {};

    bool live() const { return state == MemberState::kLive; }
  };

  // Null: no rank of a task.
  Peer* Find(BarrierTask task);
  bool WaitsFor(bool worker, const Peer& peer) const;
  // Ends stages, or finds that they cannot end, and answers those that wait then.
  void Update();
  void Update(BarrierGroup group);
  // The least stage to which all have come; nothing: none is waited for.
  std::optional<uint64_t> Least(BarrierGroup group) const;
  // The worker that has died with kFail; empty: none.
  std::string Failure(BarrierGroup group) const;
  std::string Missing(BarrierGroup group, uint64_t stage) const;
  void Answer(BarrierTask task, const Peer& peer, BarrierGroup group);
  template <typename Visit>
  void ForEach(BarrierGroup group, Visit visit) const;

  std::vector<Peer> servers_;
  std::vector<Peer> workers_;
  bool workers_known_ = false;
  bool resolved_ = false;
  OnLoss on_loss_ = OnLoss::kWait;
  Stages ended_ = {};
  std::array<std::string, kBarrierGroups> failures_;
  // Texts of Missing by stage, until something changes: all that wait ask for them twice a second.
  std::array<std::map<uint64_t, std::string>, kBarrierGroups> missing_;
  mutable uint64_t walks_ = 0;
  std::vector<Send> sends_;
};

}  // namespace phalanx::ps::internal

#endif  // PHALANX_CLIENT_PS_BARRIERS_BARRIER_KEEPER_H_
