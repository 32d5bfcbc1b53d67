// A member of a job at its client: the Join, and what the node reports of the job until the member
// ends.
//
//   joining ──Joined──► live ──Leave, MemberEnded, connection broken──► ended
//      └──Failed, deadline─────────────────────────────────────────────► ended
//
// Guarded by the connection's lock, except what is constant once the Join has ended.
#ifndef PHALANX_CLIENT_JOBS_MEMBER_CALL_H_
#define PHALANX_CLIENT_JOBS_MEMBER_CALL_H_

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "phalanx/job.h"
#include "src/client/connection/call.h"
#include "src/client/connection/connection.h"
#include "src/client/jobs/declared_death.h"

namespace phalanx::internal {

// Calls of its group that a member has under way; the next one waits for the oldest. The node takes
// more (jobs::kMaxOutstandingCalls), and refuses what exceeds that without a number.
inline constexpr size_t kMaxGroupCallsUnderWay = 512;

// How long a process that is to be killed in a call waits until the node can have its bytes.
inline constexpr absl::Duration kDeathPatience = absl::Seconds(30);

// How long Print waits for the launch.
inline constexpr absl::Duration kPrintPatience = absl::Minutes(1);

// What `phalanx launch` has put into the variables of this process.
struct FromLaunch {
  // Where the process is killed (--fail).
  DeathPoint death;
  // A file into which the process writes before that, so that the launch sees which death it was.
  std::string mark;
  // Of the task, as the launch counts.
  std::string life;
  // The socket of the launch for what this process prints; empty: there is no launch.
  std::string print;
};

// What takes the messages of a member as they arrive, instead of Receive, and the changes of
// members. Lock held. Belongs to whoever gives it to SetSink.
class MemberSink {
 public:
  virtual ~MemberSink() = default;
  virtual void OnMessage(const Message& message) = 0;
  // Of any role.
  virtual void OnMember(const Member& member) = 0;
  // The member has ended: nothing comes any more.
  virtual void OnEnd(const absl::Status& why) = 0;
};

class MemberCall final : public Call {
 public:
  MemberCall(std::shared_ptr<Connection> connection, std::string job, std::string role,
             std::string task, FromLaunch launch)
      : Call(std::move(connection), "Join", ObjectId()),
        job_(std::move(job)),
        role_(std::move(role)),
        task_(std::move(task)),
        launch_(std::move(launch)) {}

  // Lock held.
  void OnAnswer(uint64_t request, const local::Answer& answer) override;
  void OnFailure(const absl::Status& why) override { End(Explain(why)); }

  // Without the lock.
  // Sends the Join and waits for its end.
  absl::Status Begin(const JoinOptions& options);
  absl::Status status();
  std::vector<Member> MembersOf(absl::string_view role);
  absl::Status WaitForWorld(absl::Duration timeout);
  absl::StatusOr<uint64_t> WaitForChange(uint64_t after, absl::Duration timeout);
  void SetCallback(absl::AnyInvocable<void(const Member&)> callback);
  Future<Done> SendTo(int rank, absl::string_view bytes, SendOptions options);
  absl::StatusOr<Message> Receive(absl::Duration timeout);
  absl::Status Print(absl::string_view text) const;
  absl::Status Leave(bool failed);
  // The sink is first shown the members that are known and the messages that have arrived. Null:
  // no sink any more.
  void SetSink(MemberSink* sink);
  // Of the input of the next call, of so many bytes: after how many of them the process is to be
  // killed, if that is before the last one.
  std::optional<uint64_t> FatalBytes(uint64_t input);
  // Kills the process, as it is declared, when the node has what was sent.
  [[noreturn]] void DieInCall();
  const DeathPoint& death() const { return launch_.death; }
  // A session is at this point. By the session's thread.
  void DieIfDeclared(DeathPoint::Kind point);
  // Kills the process, and writes which death it is into the mark.
  [[noreturn]] void Die(absl::string_view death) const;
  // Lock held. The calls of its group that the member makes.
  void BeginGroupCall();
  void EndGroupCall() { --group_calls_under_way_; }
  bool HasRoomForGroupCall() const { return group_calls_under_way_ < kMaxGroupCallsUnderWay; }
  // How many nodes have live members of its group, and which of them, in the order of their least
  // ranks, is the member's own, as far as this client knows.
  struct Place {
    int nodes = 1;
    int node = 0;
    uint64_t change = 0;  // the last one that this takes into account
  };
  Place NodePlace();

  const std::string& job() const { return job_; }
  const std::string& role() const { return role_; }
  const std::string& task() const { return task_; }
  int world() const { return world_; }
  int rank() const { return rank_; }
  uint64_t life() const { return life_; }
  // The number that names the member at the node.
  uint64_t request() const { return request_; }

 private:
  using Callback = absl::AnyInvocable<void(const Member&)>;
  struct Arrived {
    Message message;
    uint64_t stream = 0;
  };
  // What was taken from one member and not reported to the node.
  struct Held {
    uint64_t life = 0;
    uint64_t stream = 0;
    uint64_t cost = 0;
  };

  // Lock held.
  void OnUpdate(const local::MemberUpdate& update);
  void OnMessage(const local::MessageArrived& arrived);
  Message TakeMessage();
  void ShowToSink();
  void End(absl::Status why);
  bool Complete() const;
  absl::Status Missing() const;

  const std::string job_;
  const std::string role_;
  const std::string task_;
  const FromLaunch launch_;
  // Constant once the Join has ended.
  int world_ = 0;
  int rank_ = 0;
  uint64_t life_ = 0;
  uint64_t group_calls_ = 0;
  uint64_t checkpoints_ = 0;  // of the session; its thread alone
  size_t group_calls_under_way_ = 0;
  uint64_t request_ = 0;

  bool joined_ = false;
  absl::Status why_;  // not OK once the member has ended
  std::map<std::string, std::vector<Member>, std::less<>> roles_;
  uint64_t last_change_ = 0;
  Place place_;
  // Bounded by the windows of the senders.
  std::deque<Arrived> inbox_;
  std::map<std::pair<std::string, int>, Held> held_;  // by role and rank
  std::shared_ptr<Callback> callback_;
  MemberSink* sink_ = nullptr;
};

struct MembershipState {
  explicit MembershipState(std::shared_ptr<MemberCall> made) : call(std::move(made)) {}
  ~MembershipState() { call->Leave(/*failed=*/true).IgnoreError(); }
  const std::shared_ptr<MemberCall> call;
};

}  // namespace phalanx::internal

#endif  // PHALANX_CLIENT_JOBS_MEMBER_CALL_H_
