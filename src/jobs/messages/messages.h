// Messages: sends and receives the messages of this node's members: the rim of MessageCore.
//
//   LocalSession ──Send, Taken──► Messages ──► MessageCore
//                ◄──MailboxOwner──    │ LinkReceiver, LifeLookup
//                                     ├──► NodeLinks ◄──► other nodes
//                                     └──► Members (which live where)
//
// Owned by the node. Thread rule: everything, callbacks too, on the control loop. No callback runs
// inside a call.
#ifndef PHALANX_JOBS_MESSAGES_MESSAGES_H_
#define PHALANX_JOBS_MESSAGES_MESSAGES_H_

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "src/common/ids/ids.h"
#include "src/common/threads/callback_guard.h"
#include "src/common/time/executor.h"
#include "src/jobs/members/members.h"
#include "src/jobs/messages/message_core.h"
#include "src/net/link/node_links.h"

namespace phalanx::jobs {

// A message for a member of this node.
struct ArrivedMessage {
  // The sender, in the member's own job.
  std::string role;
  uint32_t rank = 0;
  uint64_t life = 0;
  // For Taken.
  uint64_t stream = 0;
  MessageBytes bytes;
};

// The client of a member.
class MailboxOwner {
 public:
  virtual ~MailboxOwner() = default;
  virtual void OnMessage(MemberId member, const ArrivedMessage& message) = 0;
};

class Messages final : public net::LinkReceiver, private LifeLookup {
 public:
  // OK if the message has left; see MessageCore::Send.
  using Done = absl::AnyInvocable<void(const absl::Status&)>;

  // All outlive this. Becomes the receiver of LinkService::kMessages.
  Messages(NodeKey self, Executor& control, const Members& members, net::NodeLinks& links);
  ~Messages() override;

  // A member of this node is live, with its table known. `owner` hears of its messages until End.
  // REQUIRES: once for each member.
  void Begin(MemberId member, MailboxOwner* owner);
  // Its life has ended. Ignores members that have not begun.
  void End(MemberId member);
  // The table of the member's job has changed.
  void JobChanged(MemberId member);

  // Sends to the member of this role and rank in the job of `from`, in its present life; if `life`
  // is given and is another one, fails with Unavailable. `done` is not called after End(from), or
  // after Cancel. InvalidArgument: no such rank, or the message is longer than kMaxMessageBytes.
  SendId Send(MemberId from, absl::string_view role, uint32_t rank, std::optional<uint64_t> life,
              std::string bytes, Instant deadline, Done done);
  // Does nothing if the Send has ended.
  void Cancel(SendId send);
  // The member's client has taken messages that came with these values and cost so much.
  void Taken(MemberId member, absl::string_view role, uint32_t rank, uint64_t life, uint64_t stream,
             uint64_t cost);

 private:
  struct Mailbox {
    LifeKey key;
    std::string job;
    MailboxOwner* owner = nullptr;
    std::set<SendId> sends = {};  // that have not ended
  };
  // A job with mailboxes.
  struct Job {
    size_t mailboxes = 0;
    std::vector<GroupId> groups;
  };
  struct GroupName {
    std::string job;
    std::string role;
  };
  struct Sending {
    MemberId from;
    Done done;
  };

  std::optional<KnownLife> Find(const GroupId& group, uint32_t rank) const override;
  const Member* FindMember(const GroupId& group, uint32_t rank) const;

  absl::StatusOr<absl::Span<char>> PlaceFor(const NodeKey& from, absl::string_view header,
                                            size_t payload_bytes) override;
  void OnMessage(const NodeKey& from, absl::string_view header, absl::Span<char> payload) override;
  void OnLost(const NodeKey& peer, const absl::Status& why) override;

  absl::StatusOr<MessageCore::Target> TargetOf(const Mailbox& from, absl::string_view role,
                                               uint32_t rank, std::optional<uint64_t> life) const;
  void LearnGroups(const std::string& job, const MemberTable& table);
  // A mailbox of the job has ended.
  void Leave(const std::string& job);
  // Sends what the core has to send, and calls back in a later turn, or now.
  void SettleSoon();
  void Settle();
  void Transmit();
  void Carry(MessageCore::Transmit transmit);
  void Deliver(const MessageCore::Deliver& message);
  void Complete(const MessageCore::Complete& complete);
  void SetTimer();

  Executor& control_;
  const Members& members_;
  net::NodeLinks& links_;
  MessageCore core_;

  std::map<MemberId, Mailbox> mailboxes_;
  std::map<LifeKey, MemberId> by_key_;
  std::map<std::string, Job> jobs_;
  // The groups of all these jobs.
  std::map<GroupId, GroupName> groups_;
  SendId last_send_ = 0;
  std::map<SendId, Sending> sending_;
  // The large payload that arrives from each node.
  std::map<NodeKey, std::shared_ptr<std::string>> places_;
  // Peers without a link, of which the core hears in a later turn that they are lost.
  std::set<NodeKey> unreachable_;
  // Effects that call back, in order.
  std::deque<MessageCore::Effect> effects_;
  bool settle_posted_ = false;
  bool lives_changed_ = false;
  TimerId timer_ = 0;
  Instant timer_at_;
  CallbackGuard guard_;
};

}  // namespace phalanx::jobs

#endif  // PHALANX_JOBS_MESSAGES_MESSAGES_H_
