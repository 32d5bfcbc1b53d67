// The jobs of a shard: answers tasks that join, hears of the ends of members from their nodes and
// from the nodes' own ends, and sends each change to every node that has live members of the job.
//
//   JoinRequest ──► wait for the end of learning ──► Job::Join ─┐
//   MemberEnded, NodeDown ─────────────────────────► Job::End ──┼──► flush: JobUpdate to the nodes
//   RegisterJob ───────────────────────────────────► Job::Merge ┘    JoinReply
//
// When a job is flushed
//   a member's end       at the end of the turn
//   a member's join      the joining node before its reply, the others at the end of the turn, or
//                        later if the job has many nodes: the shard spends at most a share of its
//                        time on telling them, however many tasks join one by one
// A node gets what has changed since the last message to it.
//
// While the shard learns (RecoveryGate) a life that it would give can be taken, so joins wait. No
// message of this class is about a single call of a collective.
//
// Owned by DirectoryCore. Thread rule: the shard's control loop; replays from its inputs.
#ifndef PHALANX_DIRECTORY_JOBS_JOB_MANAGER_H_
#define PHALANX_DIRECTORY_JOBS_JOB_MANAGER_H_

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/btree_map.h"
#include "absl/container/btree_set.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "phalanx/v1/jobs.pb.h"
#include "src/common/ids/ids.h"
#include "src/common/time/instant.h"
#include "src/directory/core/core_context.h"
#include "src/directory/core/node_table.h"
#include "src/directory/core/outbox.h"
#include "src/directory/core/recovery_gate.h"
#include "src/directory/jobs/job.h"

namespace phalanx::directory {

class JobManager {
 public:
  // All of them outlive the manager.
  struct Parts {
    CoreContext& context;
    NodeTable& nodes;
    Outbox& outbox;
    const RecoveryGate& gate;
  };

  explicit JobManager(const Parts& parts) : parts_(parts) {}

  // InvalidArgument names the field; nothing is changed then.
  absl::Status OnMessage(const Node& node, const v1::NodeJobMessage& message);

  // ---- nodes and time
  void SessionBegins(const NodeKey& node);
  // The node has registered: its other members have died.
  void SessionRegistered(const NodeKey& node);
  void NodeDown(const NodeKey& node);
  // The gate has opened: joins that waited are answered, and members that no node registered have
  // died.
  void EndLearning();
  // Flushes the jobs that are due.
  void RunPending();
  // Ends the jobs that have had no live member for options.job_grace.
  void Tick();
  Instant NextDeadline() const;

  // ---- for the tools
  const absl::btree_map<std::string, std::unique_ptr<Job>>& jobs() const { return jobs_; }
  // Tasks that the jobs know, live or not.
  size_t members() const { return members_; }
  size_t waiting() const { return waiting_.size(); }

  absl::Status CheckInvariants() const;

 private:
  struct WaitingJoin {
    NodeKey node;
    uint64_t session = 0;
    JoinSpec spec;
  };
  using Queue = absl::btree_set<std::pair<Instant, std::string>>;

  absl::Status OnJoin(const Node& node, const v1::JoinRequest& message);
  void AnswerJoin(const Node& node, const JoinSpec& spec);
  absl::StatusOr<const JobMember*> Join(const Node& node, const JoinSpec& spec, Job*& job);
  void OnRegister(const Node& node, const RegisteredJob& registered);
  void OnEnded(const EndedMember& ended);
  void EndMembersOf(const NodeKey& node, bool only_unconfirmed);

  // Tasks that the jobs can still add.
  size_t Room() const;
  Job* Find(absl::string_view name) const;
  // nullptr if the shard has as many jobs as it can.
  Job* FindOrAdd(const std::string& name);
  // Counts what has changed in the job since `members` tasks were known, and schedules what
  // follows.
  void AfterChange(Job& job, size_t members, bool urgent);
  void Schedule(Job& job, bool urgent);
  void Reschedule(Queue& queue, Job& job, Instant& when, Instant to);
  void Flush(Job& job);
  // Sends the node what it does not know.
  void SendNews(Job& job, const NodeKey& node, Job::Watcher& watcher);
  void Remove(Job& job);

  const Parts parts_;
  absl::btree_map<std::string, std::unique_ptr<Job>> jobs_;
  // The jobs in which the node is a watcher. Members of a node without a session are in none.
  absl::btree_map<NodeKey, absl::btree_set<std::string>> jobs_of_;
  size_t members_ = 0;
  std::vector<WaitingJoin> waiting_;
  Queue flushes_;
  Queue ends_;
};

}  // namespace phalanx::directory

#endif  // PHALANX_DIRECTORY_JOBS_JOB_MANAGER_H_
