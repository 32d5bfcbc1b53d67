// Barriers: the barriers of one server or worker: its calls under way, and their messages. Server 0
// also counts, for all tasks of the job.
//
//   Worker, Server ──► BarrierMember ──► MemberSends ──► node ──► server 0: BarrierKeeper
//          ▲                 ▲                                          │
//   futures┴─────────────────┴── MemberSink ◄── node ◄── MemberSends ◄──┘
//
// Belongs to a WorkerState or a ServerState, which passes on what its member gets. Under the
// connection's lock, but where it says otherwise: whichever thread drives the connection counts.
#ifndef PHALANX_CLIENT_PS_BARRIERS_BARRIERS_H_
#define PHALANX_CLIENT_PS_BARRIERS_BARRIERS_H_

#include <map>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "phalanx/client.h"
#include "phalanx/job.h"
#include "phalanx/ps_barrier.h"
#include "src/client/connection/call.h"
#include "src/client/ps/barriers/barrier_keeper.h"
#include "src/client/ps/barriers/barrier_member.h"
#include "src/client/ps/member_sends.h"

namespace phalanx::ps::internal {

class Barriers {
 public:
  struct Roles {
    std::string servers;
    std::string workers;
  };

  // Without the lock.
  Barriers(Membership member, Roles roles);

  // Without the lock. The future ends as Worker::BarrierAsync says; `patience` is how long it waits
  // unless the options say so.
  Future<Done> Begin(BarrierGroup group, const BarrierOptions& options, absl::Duration patience);

  // False: the message is none of barriers.
  bool OnMessage(const Message& message);
  void OnMember(const Member& member);
  // The member has ended, or its owner: all calls end with this.
  void OnEnd(const absl::Status& why);

  // Null: this is not server 0.
  BarrierKeeper* keeper() { return keeper_.has_value() ? &*keeper_ : nullptr; }
  const BarrierKeeper* keeper() const { return keeper_.has_value() ? &*keeper_ : nullptr; }
  // After a change of the keeper: sends what it wants to send, and ends calls.
  void Drain();

 private:
  struct BarrierCall;
  struct TickTimer;

  bool is_worker() const { return member_.role() == roles_.workers; }
  // "worker 2 of job train", for errors.
  std::string Where() const;
  // The task that a member is; nothing: it is of another role.
  std::optional<BarrierTask> TaskOf(const std::string& role, int rank) const;
  void Forget(BarrierMember::Ticket ticket);
  void Tick();

  const Membership member_;
  const Roles roles_;
  const std::shared_ptr<phalanx::internal::Connection> connection_;
  std::shared_ptr<MemberSends> to_servers_;
  std::shared_ptr<MemberSends> to_workers_;  // of server 0
  std::optional<BarrierKeeper> keeper_;
  BarrierMember own_;
  std::map<BarrierMember::Ticket, std::shared_ptr<BarrierCall>> calls_;
  std::shared_ptr<TickTimer> timer_;  // for the next Tick; null: none runs
  absl::Status over_;                 // not OK: the member has ended
};

}  // namespace phalanx::ps::internal

#endif  // PHALANX_CLIENT_PS_BARRIERS_BARRIERS_H_
