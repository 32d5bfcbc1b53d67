// One client's part in jobs: its requests about members, messages and groups. Joins the parts that
// handle them.
//
// On() handles a request. It returns InvalidArgument if the client breaks the protocol, which ends
// the client; an error of the request itself goes to the client as Failed.
//
// Owned by a LocalSession; loop thread only.
#ifndef PHALANX_LOCAL_JOBS_CLIENT_JOBS_H_
#define PHALANX_LOCAL_JOBS_CLIENT_JOBS_H_

#include <cstdint>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "src/common/time/instant.h"
#include "src/jobs/members/members.h"
#include "src/jobs/messages/messages.h"
#include "src/local/jobs/client_groups.h"
#include "src/local/jobs/client_members.h"
#include "src/local/local_outbox.h"
#include "src/local/local_protocol.h"

namespace phalanx::object_store {

// The node's parts of jobs; they outlive the sessions.
struct LocalJobs {
  jobs::Members& members;
  jobs::Messages& messages;
  // Null: the node has no groups.
  jobs::GroupService* groups = nullptr;
  jobs::StoreGroupMemory* group_memory = nullptr;
};

class ClientJobs {
 public:
  // Both outlive this. `send` queues an answer to the client; `deadline` is that of a request with
  // this timeout.
  struct Session {
    absl::AnyInvocable<void(LocalOutbox::Item item)> send;
    absl::AnyInvocable<Instant(absl::Duration timeout) const> deadline;
    absl::AnyInvocable<void(uint64_t request, const absl::Status& why)> fail;
  };
  ClientJobs(const LocalJobs& jobs, Session session);

  absl::Status On(const local::Join& join);
  absl::Status On(const local::LeaveJob& leave);
  absl::Status On(const local::SendMessage& message);
  absl::Status On(const local::MessageTaken& taken);
  absl::Status On(const local::GroupCall& call);
  absl::Status On(const local::GroupBuffer& buffer);
  absl::Status On(const local::GroupFilled& filled) { return groups_.OnFilled(filled); }
  absl::Status On(const local::GroupResult& result);
  absl::Status On(const local::AskGroupProgress& ask);

  // A message that was not sent yet is not sent any more, and a question about a group ends.
  // Ignores other requests.
  void Cancel(uint64_t request) {
    members_.messages().Cancel(request);
    groups_.CancelResult(request);
  }
  // The client leaves: its members have died.
  void EndMembers() { members_.EndAll(); }
  ClientGroups& groups() { return groups_; }
  const ClientGroups& groups() const { return groups_; }

 private:
  Session session_;
  ClientMembers members_;
  ClientGroups groups_;
};

}  // namespace phalanx::object_store

#endif  // PHALANX_LOCAL_JOBS_CLIENT_JOBS_H_
