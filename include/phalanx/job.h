// Jobs: tasks that know of each other. docs/jobs.md explains what a job is and what happens when a
// member dies.
//
//   // Without a job and a task: those in the variables that `phalanx launch` sets.
//   auto member = client->Join("train", "worker3", {.world = 8}).value();
//   member.WaitForWorld(absl::Seconds(30));
//   for (const phalanx::Member& other : member.Members()) use(other.rank, other.host);
//   member.Leave();
//
// A task that dies is joined again by its next life: the same rank, the next life number. Of two
// lives of one task only the newer one is a member: the older one's calls return Aborted.
//
// Memberships are values that share their state. Any thread. In a child of fork every method
// returns FailedPrecondition, or what is known.
#ifndef PHALANX_JOB_H_
#define PHALANX_JOB_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "phalanx/client.h"
#include "phalanx/member_state.h"

namespace phalanx {

namespace internal {
struct MembershipState;
}  // namespace internal

// The greatest number of tasks of a role, and the greatest size of the name of a job, role or task.
inline constexpr int kMaxJobWorld = 65536;
inline constexpr size_t kMaxJobNameSize = 255;

struct JoinOptions {
  // The number of tasks of this role, the same for all of them. 0: PHALANX_WORLD.
  int world = 0;
  // Empty: PHALANX_ROLE, or "worker" if that is not set.
  std::string role = {};
  // The rank that the task must have. Without it a task named like worker3 has rank 3 if that is
  // free, and any other the least free rank.
  std::optional<int> rank = {};
  // Limits the wait for the directory; right after its start it takes a lease (2 s) to answer.
  absl::Duration timeout = absl::Seconds(60);
};

// The last known state of a task, or of a rank that no task has had so far.
struct Member {
  int rank = 0;
  MemberState state = MemberState::kAbsent;
  uint64_t life = 0;
  std::string task;
  std::string role;
  std::string host;     // the node's label `host`, or the host of its address
  std::string node;     // the node's name
  uint64_t change = 0;  // the number of its last change, from 1; 0: none so far

  bool live() const { return state == MemberState::kLive; }
};

// The greatest message.
inline constexpr size_t kMaxMessageSize = size_t{1} << 20;

// A message of another member of the job.
struct Message {
  int rank = 0;
  std::string role;
  uint64_t life = 0;
  std::string bytes;
};

struct SendOptions {
  // Of the receiver. Empty: the sender's own role.
  std::string role;
  // The message is for this life of the receiver alone. Without it: for its present life.
  std::optional<uint64_t> life;
  // Limits the wait until the receiver has taken enough of the messages before this one.
  absl::Duration timeout = absl::Seconds(60);
};

// A place in a job. Copies share it; when the last copy is dropped without Leave, the others see
// that the task died.
class Membership {
 public:
  const std::string& job() const;
  const std::string& role() const;
  const std::string& task() const;
  int rank() const;
  uint64_t life() const;
  int world() const;

  // OK while the task is a member. Aborted: a newer life of the task has joined, or the node was
  // out of touch with the directory for so long that the task counts as dead for the others; it
  // can join again. FailedPrecondition after Leave. Else the error of the connection.
  absl::Status status() const;
  // All members of this role in the order of ranks, or of another role. Takes in what has arrived
  // and does not wait. Empty for a role of which no task has joined.
  std::vector<Member> Members() const;
  std::vector<Member> Members(absl::string_view role) const;
  // The hosts of the members of this role in the order of ranks; empty while a member is absent.
  std::vector<std::string> Hosts() const;
  // Waits until every rank of this role has a live member. DeadlineExceeded names the ranks that
  // have none. Else as status().
  absl::Status WaitForWorld(absl::Duration timeout) const;
  // Waits until a member of the job, of any role, has changed after the change with this number,
  // and returns the number of the last change. DeadlineExceeded; else as status(), but changes from
  // before the end are returned first.
  absl::StatusOr<uint64_t> WaitForChange(uint64_t after, absl::Duration timeout) const;
  // Calls `callback` for every change of a member of the job, of any role, from now on, its own
  // changes included. Replaces the earlier callback. Runs where the client's callbacks run
  // (ClientOptions::callback_thread). Must not wait for the client.
  void OnMember(absl::AnyInvocable<void(const Member&)> callback) const;
  // Sends at most kMaxMessageSize bytes to the member with this rank. Messages to one member arrive
  // in the order of the calls, once, unless it or this member ends first. The future ends when the
  // message has left this node: when the receiver has taken all but some 256 KiB of the messages
  // before it, or all but three long ones. Errors:
  //     Unavailable        the receiver is not live, or has died meanwhile, or is not in the life
  //                        that the options name
  //     DataLoss           messages before this one were lost with the connection between the
  //                        nodes; this one was not sent
  //     DeadlineExceeded   the receiver has not taken the messages before this one in time
  //     ResourceExhausted  32 MiB of messages of this member wait
  //     InvalidArgument    the role has no such rank, or the message is too long
  //     Aborted            this member has ended
  Future<Done> Send(int rank, absl::string_view bytes, SendOptions options = {}) const;
  // Waits for the next message of any member, and takes it. DeadlineExceeded; else as status(), but
  // messages from before the end are returned first.
  absl::StatusOr<Message> Receive(absl::Duration timeout) const;
  // Prints the text as it is, once, on the standard output of the `phalanx launch` that has started
  // this process or one of its parents; without a launch on this process's own. A newline is added
  // if the text has none at its end. No line of others comes into one of its lines; lines of more
  // than 64 KiB are cut, and texts of other tasks can come between the parts of a text of more than
  // 64 KiB. Texts of a task keep their order, and are printed also if the task dies then. Waits
  // while the launch's own output is full. Errors:
  //     Unavailable          the launch has ended, or does not share its files with this process
  //     DeadlineExceeded     it has taken nothing for a minute
  //     ResourceExhausted    no descriptor is left for it
  //     FailedPrecondition   in a child of fork
  // A launch of another user drops the text.
  absl::Status Print(absl::string_view text) const;
  // The task is a member no longer, and the others see that it left. Returns status() from before.
  absl::Status Leave() const;
  // The same, but the others see that it died.
  absl::Status Fail() const;

  explicit Membership(std::shared_ptr<internal::MembershipState> state)
      : state_(std::move(state)) {}

 private:
  friend class internal::Access;

  std::shared_ptr<internal::MembershipState> state_;
};

}  // namespace phalanx

#endif  // PHALANX_JOB_H_
