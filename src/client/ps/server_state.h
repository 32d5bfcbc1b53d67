// ServerState: what a Server has: a ServerCore, its messages, and the snapshots of its parts.
//
//   workers ──► MemberSink ──► inbox ──► ServerCore ──► MemberSends ──► workers
//               (any thread)   (Run's thread)  ├──► SnapshotStore
//                                              └──► ServerObjects
//
// What arrives is queued under the connection's lock. The core, the updates and the program's
// functions run in the thread of Run, without the lock.
//
// Run does not wait for ever: when no worker lives for peer_timeout, and some have not left, it
// ends. That is an error, unless each of them has died and all tables go on without workers that
// die.
#ifndef PHALANX_CLIENT_PS_SERVER_STATE_H_
#define PHALANX_CLIENT_PS_SERVER_STATE_H_

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "phalanx/client.h"
#include "phalanx/job.h"
#include "phalanx/ps.h"
#include "src/client/jobs/member_call.h"
#include "src/client/ps/barriers/barriers.h"
#include "src/client/ps/describe_door.h"
#include "src/client/ps/member_sends.h"
#include "src/client/ps/run_mark.h"
#include "src/client/ps/server_death.h"
#include "src/client/ps/server_disks.h"
#include "src/client/ps/server_objects.h"
#include "src/client/ps/snapshot_store.h"
#include "src/common/time/instant.h"
#include "src/ps/server/server_core.h"

namespace phalanx::ps::internal {

class ServerState final : public phalanx::internal::MemberSink {
 public:
  ServerState(std::shared_ptr<Client> client, Membership member, const Options& options);
  // The others see that this server has died, unless Run has ended well.
  ~ServerState() override;

  absl::Status AddTable(const TableSpec& spec, Server::OwnUpdate update);
  void OnRequest(std::function<absl::StatusOr<Reply>(const RequestInfo&)> answer);
  absl::Status Run();
  void Stop();
  Future<phalanx::Done> Barrier(BarrierGroup group, const BarrierOptions& options);
  void Drop();
  void Finish();
  void OnUnsaved(std::function<void(absl::string_view table, const absl::Status& why)> unsaved) {
    program_.unsaved = std::move(unsaved);
  }
  std::string Describe() const;

  const Membership& member() const { return member_; }

  // ---- MemberSink; lock held
  void OnMessage(const Message& message) override;
  void OnMember(const Member& member) override;
  void OnEnd(const absl::Status& why) override;

 private:
  struct AddedTable {
    TableSpec spec;
    Server::OwnUpdate update;
    std::unique_ptr<SnapshotStore> snapshots;  // null: it has none
    uint64_t storing = 0;                      // the core's number of the one under way
    std::optional<uint64_t> restored = {};     // the number of that with which this life begins
    std::optional<Instant> failing = {};       // since when none could be stored
  };
  struct Lost {
    int worker;
    uint64_t life;
  };
  // Finish was called.
  struct Finished {};
  // In the order in which it has arrived.
  using Event = std::variant<Message, Member, Lost, Finished>;

  // How many there are. 0: none has joined, and Finish was called. DeadlineExceeded: none has
  // joined.
  absl::StatusOr<int> AwaitWorkers();
  // Until all have left.
  absl::Status Serve(int workers, bool anew);
  // Run ends with an error: what Drop says.
  void EndDropped();
  absl::Status BeginCore(int workers, bool anew);
  // From the directory of checkpoints, if there is one.
  absl::Status BeginDisks();
  // Run has ended well: the others see that this server has left.
  absl::Status End();
  // Waits for an event, a snapshot, a sum, Stop, Finish or a time, and handles all that there is.
  absl::Status Turn();
  void Handle(const Event& event);
  // The workers that have ended so far are those of an earlier run.
  void ForgetEnded();
  // Of server 0: what barriers have to know of the job. Nothing: not yet.
  void ShowToBarriers(std::optional<int> workers, bool other_run);
  // As Members says, but those of an earlier run are absent.
  std::vector<Member> Workers() const;
  // Members have changed: notes since when no worker lives.
  void NoteAlone();
  // The workers that have not left, and why, as a text for errors.
  std::string Missing() const;
  // All of them have died, and all tables drop such workers.
  bool Abandoned() const;
  void TakeWritten();
  void NotStored(uint32_t table, const absl::Status& why);
  void TakeObjects();
  absl::Status Act();
  void ActOnObjects(const ServerCore::Effects& effects);
  void Answer(const ServerCore::Asked& asked);

  const std::shared_ptr<Client> client_;
  const std::shared_ptr<phalanx::internal::Connection> connection_;
  const Membership member_;
  const Options options_;

  // Of the thread of Run.
  std::vector<AddedTable> tables_;
  struct {
    std::function<absl::StatusOr<Reply>(const RequestInfo&)> answer;
    std::function<void(absl::string_view table, const absl::Status& why)> unsaved;
  } program_;
  ServerObjects objects_;
  std::optional<ServerCore> core_;
  bool left_ = false;
  RunMark mark_;
  ServerDeath death_;
  DescribeDoor door_;
  std::unique_ptr<ServerDisks> disks_;    // null: there is no directory
  std::map<int, uint64_t> ended_before_;  // lives of workers of an earlier run, by rank
  struct Times {
    Instant retry = Instant::Infinite();  // of snapshots and sums that have failed
    Instant alone = Instant::Infinite();  // until it no worker lives; Run ends then
  };
  Times times_;

  // Under the connection's lock.
  std::deque<Event> events_;
  Barriers barriers_;
  std::shared_ptr<MemberSends> sends_;
  struct {
    absl::Status over;       // with what Run ends, also after Stop
    bool finishing = false;  // workers that are absent or have died are not waited for
    bool dropped = false;    // snapshots are freed whatever ends Run
  } end_;
};

}  // namespace phalanx::ps::internal

#endif  // PHALANX_CLIENT_PS_SERVER_STATE_H_
