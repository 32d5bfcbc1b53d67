// The messages of the members that one client has: hands the client's Sends to the node's Messages,
// and what arrives for its members to the client.
//
// A client that does not read or take its messages holds up their senders, which have a window for
// each pair of members, and no other.
//
// Owned by a LocalSession; loop thread only.
#ifndef PHALANX_LOCAL_JOBS_CLIENT_MESSAGES_H_
#define PHALANX_LOCAL_JOBS_CLIENT_MESSAGES_H_

#include <cstdint>
#include <map>
#include <set>
#include <utility>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "src/common/time/instant.h"
#include "src/jobs/messages/messages.h"
#include "src/local/local_outbox.h"
#include "src/local/local_protocol.h"

namespace phalanx::object_store {

class ClientMessages final : public jobs::MailboxOwner {
 public:
  // Queues an answer to the client.
  using Answer = absl::AnyInvocable<void(LocalOutbox::Item item)>;

  // `messages` outlives this.
  ClientMessages(jobs::Messages& messages, Answer answer)
      : messages_(messages), answer_(std::move(answer)) {}
  // REQUIRES: End was called for every member.
  ~ClientMessages() override = default;
  ClientMessages(const ClientMessages&) = delete;
  ClientMessages& operator=(const ClientMessages&) = delete;

  // The member of the Join with this number is live; `id` is its number at the node.
  void Begin(uint64_t join, jobs::MemberId id);
  // The member has ended: so do its Sends. Ignores members that have not begun.
  void End(jobs::MemberId id);
  // The table of the member's job has changed.
  void Changed(jobs::MemberId id) { messages_.JobChanged(id); }

  // Answered by Counted or Failed. REQUIRES: the request has no other Send.
  void Send(const local::SendMessage& message, Instant deadline);
  bool Sends(uint64_t request) const { return sends_.contains(request); }
  // Ends the Send without an answer. Ignores other requests.
  void Cancel(uint64_t request);
  void Taken(const local::MessageTaken& taken);

  void OnMessage(jobs::MemberId member, const jobs::ArrivedMessage& message) override;

 private:
  struct Sending {
    jobs::MemberId from = 0;
    jobs::SendId send = 0;
  };

  struct Member {
    uint64_t join = 0;
    std::set<uint64_t> sends = {};  // requests
  };

  void Fail(uint64_t request, absl::Status why);
  // The Send has ended.
  void Erase(uint64_t request);

  jobs::Messages& messages_;
  Answer answer_;
  std::map<uint64_t, jobs::MemberId> ids_;  // by the numbers of their Joins
  std::map<jobs::MemberId, Member> members_;
  std::map<uint64_t, Sending> sends_;  // by request
};

}  // namespace phalanx::object_store

#endif  // PHALANX_LOCAL_JOBS_CLIENT_MESSAGES_H_
