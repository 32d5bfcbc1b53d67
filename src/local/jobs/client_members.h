// The members of jobs that one client has, by the numbers of its Joins: hands the client's requests
// to the node's Members, and encodes what these report of the jobs.
//
// A client that does not read costs one queued answer for each of its members, however much changes
// meanwhile: the answer is encoded when the socket has room, with all changes until then.
//
// Owned by a LocalSession; loop thread only.
#ifndef PHALANX_LOCAL_JOBS_CLIENT_MEMBERS_H_
#define PHALANX_LOCAL_JOBS_CLIENT_MEMBERS_H_

#include <cstddef>
#include <cstdint>
#include <map>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "src/common/time/instant.h"
#include "src/jobs/group/service/group_service.h"
#include "src/jobs/members/members.h"
#include "src/jobs/messages/messages.h"
#include "src/local/jobs/client_messages.h"
#include "src/local/local_outbox.h"
#include "src/local/local_protocol.h"

namespace phalanx::object_store {

// Members of one client. Beyond the limit a Join fails with ResourceExhausted.
inline constexpr size_t kMaxMembersPerClient = 1024;

class ClientMembers final : public jobs::MemberListener {
 public:
  // Queues an answer to the client.
  using Send = absl::AnyInvocable<void(LocalOutbox::Item item)>;

  // The three outlive this. `groups`: null if the node has none.
  ClientMembers(jobs::Members& members, jobs::Messages& messages, jobs::GroupService* groups,
                Send send)
      : members_(members),
        groups_(groups),
        send_(std::move(send)),
        messages_(messages, [this](LocalOutbox::Item item) { send_(std::move(item)); }) {}
  // The client's members have died.
  ~ClientMembers() override { EndAll(); }
  ClientMembers(const ClientMembers&) = delete;
  ClientMembers& operator=(const ClientMembers&) = delete;

  bool Contains(uint64_t request) const { return by_request_.contains(request); }
  // Returns nullptr if no live member has this number.
  const jobs::LocalMember* Find(uint64_t request) const {
    const auto found = by_request_.find(request);
    return found == by_request_.end() ? nullptr : members_.Find(found->second.id);
  }
  // InvalidArgument, ResourceExhausted; later errors are sent to the client. REQUIRES: no member
  // has this number.
  absl::Status Join(const local::Join& join, Instant deadline);
  // Ignores unknown numbers: the member can have ended meanwhile. A member that has not failed
  // stays in its job, without its client, until no other node needs the results of its calls.
  void Leave(uint64_t request, bool failed);
  void EndAll();
  ClientMessages& messages() { return messages_; }

  // ---- MemberListener
  void OnJoined(jobs::MemberId id, const absl::StatusOr<jobs::LocalMember>& member) override;
  void OnChanged(jobs::MemberId id) override;
  void OnEnded(jobs::MemberId id, const absl::Status& why) override;

 private:
  struct Member {
    jobs::MemberId id = 0;
    uint64_t last_sent = 0;  // the last change that was encoded
    bool queued = false;     // an update waits in the outbox
  };

  void QueueUpdate(uint64_t request);
  void EncodeUpdate(uint64_t request, LocalOutbox::Batch& batch);
  void Erase(uint64_t request);

  jobs::Members& members_;
  jobs::GroupService* const groups_;
  Send send_;
  ClientMessages messages_;
  std::map<uint64_t, Member> by_request_;
  std::map<jobs::MemberId, uint64_t> requests_;
};

}  // namespace phalanx::object_store

#endif  // PHALANX_LOCAL_JOBS_CLIENT_MEMBERS_H_
