// What a node knows of one job: its members by role and rank, and the epoch under which the shard
// has sent them.
//
//   JobUpdate, in pieces ──► Apply ──► view(role), for observers
//                                ├───► changes after a number, for clients
//                                └───► Registration, for a shard that was restarted
//
// The end of a life is final: an update from before it that says otherwise does not undo it.
//
// Pure; owned by Members, on the control loop.
#ifndef PHALANX_JOBS_MEMBERS_MEMBER_TABLE_H_
#define PHALANX_JOBS_MEMBERS_MEMBER_TABLE_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "phalanx/v1/jobs.pb.h"
#include "src/jobs/members/group_view.h"

namespace phalanx::jobs {

class MemberTable {
 public:
  explicit MemberTable(std::string job) : job_(std::move(job)) {}
  MemberTable(const MemberTable&) = delete;
  MemberTable& operator=(const MemberTable&) = delete;

  // Takes a piece of an update. Returns true if it was the last one: the table has changed.
  // Ignores roles and members that a shard cannot send.
  bool Apply(const v1::JobUpdate& update);
  // A new session has begun: pieces of an update that did not come to its end are void.
  void DropPieces() { pieces_.clear(); }

  const std::string& job() const { return job_; }
  const JobEpoch& epoch() const { return epoch_; }
  // Returns nullptr if no task of the role has joined. Valid until the next Apply.
  const GroupView* view(absl::string_view role) const;
  // The names of the roles, in their order.
  std::vector<std::string> roles() const;
  // Whether a member is live on this incarnation of a node.
  bool IsUsed(const NodeKey& node) const { return live_on_.contains(node); }
  // Returns nullptr if the task has not joined.
  const Member* Find(absl::string_view role, absl::string_view task) const;

  // The number of the last change; 0 before the first.
  uint64_t last_change() const { return last_change_; }
  // The members that have changed after the change with this number, the oldest change first.
  std::vector<const Member*> ChangedAfter(uint64_t change) const;

  // The whole table, without what a client did since: see Members.
  std::vector<v1::RegisterJob> Registration() const;

 private:
  struct Role {
    GroupView view;
    std::map<std::string, int, std::less<>> ranks;  // by task
    std::vector<uint64_t> changed;                  // by rank; 0: absent
  };

  void Commit();
  void Take(const v1::JobUpdate& update, bool whole);
  void Set(Role& role, const v1::JobMember& member);
  // Adds a member that is live to the count of its node, or takes it away.
  void Count(const Member& member, int change);

  const std::string job_;
  JobEpoch epoch_;
  std::map<std::string, Role, std::less<>> roles_;
  // By the number of the change: the member's role and rank.
  std::map<uint64_t, std::pair<const Role*, int>> changes_;
  uint64_t last_change_ = 0;
  std::map<NodeKey, int> live_on_;
  std::vector<v1::JobUpdate> pieces_;
};

}  // namespace phalanx::jobs

#endif  // PHALANX_JOBS_MEMBERS_MEMBER_TABLE_H_
