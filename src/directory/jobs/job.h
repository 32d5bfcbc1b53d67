// One job at its shard: which tasks have joined, with which rank and life, on which node, and which
// of the changes that were sent to each of these nodes.
//
// A member's states, by task
//
//            Join           MemberEnded, node fenced
//     (none) ────► kLive ─────────────────────────► kDied, kLeft
//                   │ ▲                                  │
//      Join: life+1 └─┤                                  │
//                     └──────── Join: life + 1 ──────────┘
//
// Rules
//  1. A task keeps its rank, and two tasks of a role never have one rank, for as long as the job
//     exists.
//  2. Lives of a task only grow. Of two states of one life, the end is final.
//  3. Two nodes that got the same epoch know the same members.
//  4. After a restart of the shard the job is what nodes register: the greatest life of each task,
//     under the greatest epoch. Its next epoch has a greater incarnation than any of these.
//
// Pure; owned by the JobTable. Thread rule: the shard's control loop.
#ifndef PHALANX_DIRECTORY_JOBS_JOB_H_
#define PHALANX_DIRECTORY_JOBS_JOB_H_

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/btree_map.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "phalanx/v1/jobs.pb.h"
#include "src/common/ids/ids.h"
#include "src/common/ids/job_ids.h"
#include "src/common/random.h"
#include "src/common/time/instant.h"
#include "src/directory/jobs/job_messages.h"

namespace phalanx::directory {

struct JobRole;

struct JobMember {
  JobRole* role = nullptr;
  std::string task;
  int rank = 0;
  uint64_t life = 0;
  MemberState state = MemberState::kAbsent;
  MemberPlace place;
  Instant since;  // in this state
  // The number of its last change; 0: unchanged since the job was registered.
  uint64_t changed = 0;
  // Its node has registered this life in the node's current session, or the member joined in it.
  bool confirmed = false;
};

struct JobRole {
  std::string name;
  int world = 0;
  int next_free = 0;  // every rank below it has a task
  int live = 0;
  int died = 0;
  absl::btree_map<int, JobMember*> by_rank;
  absl::flat_hash_map<std::string, std::unique_ptr<JobMember>> by_task;
};

class Job {
 public:
  // What the shard has sent to a node that has live members here, or had until it gets the change.
  struct Watcher {
    // By role and task, which are views into the member.
    absl::btree_map<std::pair<absl::string_view, absl::string_view>, JobMember*> live;
    uint64_t last_sent = 0;  // the number of the last change that it knows
    bool whole = true;       // it needs all members
  };
  // How members of nodes without a complete registration are judged.
  enum class Judge { kWait, kDead };

  Job(std::string name, Instant now) : name_(std::move(name)), since_(now), last_flush_(now) {}
  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;

  // The task joins, with its next life. InvalidArgument (the world or the rank differs),
  // AlreadyExists (another task has the rank), ResourceExhausted (no rank or role is left); then
  // nothing has changed.
  absl::StatusOr<const JobMember*> Join(const JoinSpec& spec, const MemberPlace& place,
                                        Instant now);
  // This life of the member has ended. Returns false if it is not live, or another life is.
  bool End(absl::string_view role, absl::string_view task, uint64_t life, MemberState how,
           Instant now);
  // All members of the node have died, or those that it has not registered. Returns their number.
  int EndAllOf(const NodeKey& node, bool only_unconfirmed, Instant now);
  // The node registers anew: none of its members is confirmed, and it needs all members.
  void SessionBegins(const NodeKey& node);
  // Nothing is sent to the node any more.
  void Unwatch(const NodeKey& node) { watchers_.erase(node); }
  // Merges a part of what `from` knows. `own`, `others`: how live members that are new to the shard
  // are judged, on `from` and on other nodes. Adds at most `room` tasks, and returns the number of
  // members for which there is no place: other tasks, and roles beyond kMaxRolesPerJob.
  size_t Merge(const RegisteredJob& registered, const NodeKey& from, Judge own, Judge others,
               size_t room, Instant now);
  // Merge has taken the last part.
  void EndMerge(const RegisteredJob& registered, const NodeKey& from);

  // Gives the changes since the last call an epoch, if there are any.
  void Mint(Random& random);
  bool unminted() const { return last_change_ > minted_change_ || reminted_; }

  // Whether the task has joined, in whatever state it is.
  bool Knows(absl::string_view role, absl::string_view task) const;

  const std::string& name() const { return name_; }
  const JobEpoch& epoch() const { return epoch_; }
  Instant since() const { return since_; }
  int live() const { return live_; }
  size_t members() const { return members_; }
  const absl::btree_map<std::string, std::unique_ptr<JobRole>>& roles() const { return roles_; }
  absl::btree_map<NodeKey, Watcher>& watchers() { return watchers_; }
  const absl::btree_map<NodeKey, Watcher>& watchers() const { return watchers_; }
  // By the number of the change.
  const absl::btree_map<uint64_t, JobMember*>& changes() const { return changes_; }
  uint64_t last_change() const { return last_change_; }

  // ---- written by JobManager
  Instant last_flush() const { return last_flush_; }
  void NoteFlush(Instant now) { last_flush_ = now; }
  Instant due = Instant::Infinite();   // in its queue of flushes
  Instant ends = Instant::Infinite();  // in its queue of jobs without live members

  absl::Status CheckInvariants() const;

 private:
  // One call of Merge.
  struct Merging {
    const NodeKey& from;
    Judge own;
    Judge others;
    // The shard takes over the epoch of `from`.
    bool adopts;
    size_t room;
    size_t refused;
    Instant now;
  };

  absl::Status CheckWorld(const JoinSpec& spec) const;
  absl::StatusOr<int> ChooseRank(const JoinSpec& spec, JobRole* role) const;
  JobRole& RoleOf(absl::string_view name, int world);
  JobRole* FindRole(absl::string_view name) const;
  JobMember& Add(JobRole& role, absl::string_view task, int rank);
  void MergeMember(JobRole& role, const RegisteredMember& found, Merging& merging);
  void AdoptEpoch(const JobEpoch& epoch);
  void SetState(JobMember& member, MemberState state, Instant now);
  void Changed(JobMember& member);
  std::string Named(const JobRole& role) const;

  const std::string name_;
  const Instant since_;
  Instant last_flush_;
  JobEpoch epoch_;
  bool minted_here_ = false;  // the epoch is of this life of the shard
  bool adopted_ = false;      // the epoch is of an earlier one
  bool reminted_ = false;     // the next Mint makes a new epoch, with or without changes
  int live_ = 0;
  size_t members_ = 0;
  absl::btree_map<std::string, std::unique_ptr<JobRole>> roles_;
  absl::btree_map<NodeKey, Watcher> watchers_;
  absl::btree_map<uint64_t, JobMember*> changes_;
  uint64_t last_change_ = 0;
  uint64_t minted_change_ = 0;
};

// `role`: the position of the member's role in the message.
void ToProto(const JobMember& member, uint32_t role, v1::JobMember* out);

}  // namespace phalanx::directory

#endif  // PHALANX_DIRECTORY_JOBS_JOB_H_
