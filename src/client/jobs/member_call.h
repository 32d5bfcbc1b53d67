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

namespace phalanx::internal {

class MemberCall final : public Call {
 public:
  // `fatal_call`: the call of a group, from 1, in which this process is killed; 0: none.
  MemberCall(std::shared_ptr<Connection> connection, std::string job, std::string role,
             std::string task, uint64_t fatal_call)
      : Call(std::move(connection), "Join", ObjectId()),
        job_(std::move(job)),
        role_(std::move(role)),
        task_(std::move(task)),
        fatal_call_(fatal_call) {}

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
  absl::Status Leave(bool failed);
  // Lock held. Counts the calls of its group that the member makes; the first one is 1.
  uint64_t CountGroupCall();
  // Lock held. The node has answered the call as the one with this number of its group.
  void PlaceGroupCall(uint64_t made, uint64_t number) { group_calls_before_ = number - made; }
  // Lock held. Returns 0 if the number is not known: no call of a next life has had a result.
  uint64_t NumberOfGroupCall(uint64_t made) const {
    if (life_ > 0 && !group_calls_before_.has_value()) return 0;
    return group_calls_before_.value_or(0) + made;
  }

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
  void End(absl::Status why);
  bool Complete() const;
  absl::Status Missing() const;

  const std::string job_;
  const std::string role_;
  const std::string task_;
  const uint64_t fatal_call_;
  // Constant once the Join has ended.
  int world_ = 0;
  int rank_ = 0;
  uint64_t life_ = 0;
  uint64_t group_calls_ = 0;
  // The calls of the group before the member's first one.
  std::optional<uint64_t> group_calls_before_;
  uint64_t request_ = 0;

  bool joined_ = false;
  absl::Status why_;  // not OK once the member has ended
  std::map<std::string, std::vector<Member>, std::less<>> roles_;
  uint64_t last_change_ = 0;
  // Bounded by the windows of the senders.
  std::deque<Arrived> inbox_;
  std::map<std::pair<std::string, int>, Held> held_;  // by role and rank
  std::shared_ptr<Callback> callback_;
};

struct MembershipState {
  explicit MembershipState(std::shared_ptr<MemberCall> made) : call(std::move(made)) {}
  ~MembershipState() { call->Leave(/*failed=*/true).IgnoreError(); }
  const std::shared_ptr<MemberCall> call;
};

}  // namespace phalanx::internal

#endif  // PHALANX_CLIENT_JOBS_MEMBER_CALL_H_
