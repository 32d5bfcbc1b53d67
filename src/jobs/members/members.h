// One node's part in jobs: the joins and ends of its clients' members, and what it knows of the
// jobs in which they are.
//
//   clients ──Join, Leave──►┌─────────┐──NodeJobMessage──► ShardChannel
//           ◄─MemberListener│ Members │◄─JobUpdate JoinReply
//   groups  ◄─GroupObserver─└────┬────┘
//                                └ a MemberTable for each job
//
// A member of this node
//
//   Join ──► joining ──JoinReply──► live ──Leave, the client's end──► ended (reported)
//               │                     └────a newer life, fenced─────► ended (OnEnded)
//               └──deadline, Leave──► given up: ended when the reply comes
//
// The shard's state is soft. In a new session the node registers the tables of its jobs, also those
// whose last member here has ended less than kKeepJob ago: their lives must not be given again.
//
// Thread rule: everything, callbacks too, on the control loop. Listeners are never called inside a
// call, observers only inside Leave. Owned by the node.
#ifndef PHALANX_JOBS_MEMBERS_MEMBERS_H_
#define PHALANX_JOBS_MEMBERS_MEMBERS_H_

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "phalanx/v1/directory.pb.h"
#include "src/common/ids/ids.h"
#include "src/common/threads/callback_guard.h"
#include "src/common/time/executor.h"
#include "src/jobs/members/group_view.h"
#include "src/jobs/members/member_table.h"
#include "src/object_store/channel/shard_channel.h"

namespace phalanx::jobs {

// How long a job is known after its last member here has ended; as long as at the shard.
inline constexpr absl::Duration kKeepJob = absl::Minutes(1);
// Members, and joins without a reply, of all clients of a node.
inline constexpr size_t kMaxMembersPerNode = 1 << 16;

// Numbers the members of this life of the node, from 1.
using MemberId = uint64_t;

struct JoinArguments {
  std::string job;
  std::string role;
  std::string task;
  int world = 0;
  std::optional<int> rank = {};
};

struct LocalMember {
  std::string job;
  std::string role;
  std::string task;
  int rank = 0;
  uint64_t life = 0;
};

// The client of a member. Not called any more after Leave, OnEnded, or OnJoined with an error.
class MemberListener {
 public:
  virtual ~MemberListener() = default;
  // InvalidArgument, AlreadyExists, ResourceExhausted of the shard; DeadlineExceeded.
  virtual void OnJoined(MemberId id, const absl::StatusOr<LocalMember>& member) = 0;
  // The table of the member's job has changed.
  virtual void OnChanged(MemberId id) = 0;
  // This life has ended: Aborted.
  virtual void OnEnded(MemberId id, const absl::Status& why) = 0;
};

class Members final : public object_store::Registrant {
 public:
  // `control` and `channel` outlive this. `name` is the node's, for messages.
  Members(NodeKey self, std::string name, Executor& control, object_store::ShardChannel& channel);
  ~Members() override;
  Members(const Members&) = delete;
  Members& operator=(const Members&) = delete;

  // Called for every group with members here. Outlives this.
  void AddObserver(GroupObserver* observer) { observers_.push_back(observer); }

  // The task joins; `listener` hears the outcome. InvalidArgument names the argument;
  // ResourceExhausted.
  absl::StatusOr<MemberId> Join(JoinArguments arguments, Instant deadline,
                                MemberListener* listener);
  // The listener of a live member is not called any more; the member stays. Ignores other ids.
  void Detach(MemberId id);
  // The member has left its job, or died with its client. Ends a join, too. Ignores unknown ids.
  void Leave(MemberId id, MemberState how);

  // Returns nullptr if the member is not live.
  const LocalMember* Find(MemberId id) const;
  // The job of a live member.
  const MemberTable* TableOf(MemberId id) const;
  // Whether a member of a job that this node knows is live on this incarnation of a node. If not,
  // nothing of jobs goes there or comes from there.
  bool IsUsed(const NodeKey& node) const;
  // Whether `member` of the job is one of this node that was detached.
  bool IsDetached(absl::string_view job, const Member& member) const;
  // Returns nullptr if the node does not know the group.
  const GroupView* ViewOf(absl::string_view job, absl::string_view role) const;

  struct Stats {
    uint64_t members = 0;  // live ones of this node
    uint64_t joining = 0;
    uint64_t jobs = 0;  // known to the node
  };
  Stats stats() const { return {live_.size(), joining_.size(), jobs_.size()}; }

  // ---- Registrant
  std::vector<v1::NodeMessage> BeginSession(int shard) override;

 private:
  struct Joining {
    JoinArguments arguments;
    MemberListener* listener = nullptr;  // null: given up
    TimerId timer = 0;
  };
  struct Live {
    LocalMember member;
    MemberListener* listener = nullptr;  // null: detached
  };
  using TaskKey = std::pair<std::string, std::string>;  // role, task
  struct KnownJob {
    explicit KnownJob(const std::string& name) : table(name) {}
    MemberTable table;
    std::map<TaskKey, MemberId> live;  // of this node
    // Lives of members of this node that left, as long as the table has them as live.
    std::map<TaskKey, uint64_t> left;
    TimerId forget = 0;
  };

  void OnMessage(const v1::ShardJobMessage& message);
  void OnUpdate(const v1::JobUpdate& update);
  void OnReply(const v1::JoinReply& reply);
  void OnDeadline(MemberId id);
  void SendJoin(MemberId id, const JoinArguments& arguments);
  void SendEnded(const LocalMember& member, MemberState how);
  static v1::NodeMessage EndedMessage(const LocalMember& member, MemberState how);

  KnownJob& JobOf(const std::string& name);
  void EndReplaced(KnownJob& job);
  // The member is not in the job any more.
  void Remove(KnownJob& job, const LocalMember& member);
  void ForgetLater(KnownJob& job);
  void ShowViews(const KnownJob& job);
  // Whether a client of this node has this life of the member.
  bool IsLive(const KnownJob& job, const Member& member) const;
  bool HasMembers(const KnownJob& job, const std::string& role) const;
  int ShardOf(const std::string& job) const;

  const NodeKey self_;
  const std::string name_;
  Executor& control_;
  object_store::ShardChannel& channel_;
  std::vector<GroupObserver*> observers_;
  MemberId last_id_ = 0;
  std::map<MemberId, Joining> joining_;
  std::map<MemberId, Live> live_;
  std::map<std::string, std::unique_ptr<KnownJob>, std::less<>> jobs_;
  CallbackGuard guard_;
};

}  // namespace phalanx::jobs

#endif  // PHALANX_JOBS_MEMBERS_MEMBERS_H_
