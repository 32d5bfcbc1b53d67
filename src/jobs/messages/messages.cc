#include "src/jobs/messages/messages.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "src/common/check.h"
#include "src/common/status_macros.h"

namespace phalanx::jobs {

Messages::Messages(NodeKey self, Executor& control, const Members& members, net::NodeLinks& links)
    : control_(control), members_(members), links_(links), core_(self, *this) {
  links_.SetReceiver(net::LinkService::kMessages, this);
}

Messages::~Messages() {
  guard_.Close();
  links_.SetReceiver(net::LinkService::kMessages, nullptr);
  if (timer_ != 0) control_.Cancel(timer_);
}

// Members and what is known of them.

void Messages::Begin(MemberId member, MailboxOwner* owner) {
  const LocalMember* const local = members_.Find(member);
  const MemberTable* const table = members_.TableOf(member);
  PHALANX_CHECK(local != nullptr && table != nullptr, "a live member has a table");
  const LifeKey key = {GroupIdOf(local->job, local->role), static_cast<uint32_t>(local->rank),
                       local->life};
  mailboxes_[member] = {key, local->job, owner};
  by_key_[key] = member;
  ++jobs_[local->job].mailboxes;
  // Before core_.Begin, which looks up the senders of parked messages.
  LearnGroups(local->job, *table);
  core_.Begin(key, control_.Now());
  SettleSoon();
}

void Messages::End(MemberId member) {
  const auto found = mailboxes_.find(member);
  if (found == mailboxes_.end()) return;
  core_.End(found->second.key);
  const Mailbox mailbox = std::move(found->second);
  by_key_.erase(mailbox.key);
  mailboxes_.erase(found);
  // Effects that are queued already find no callback, so none runs after the end.
  for (const SendId send : mailbox.sends) sending_.erase(send);
  Leave(mailbox.job);
  SettleSoon();
}

void Messages::JobChanged(MemberId member) {
  const auto found = mailboxes_.find(member);
  const MemberTable* const table = members_.TableOf(member);
  if (found == mailboxes_.end() || table == nullptr) return;
  LearnGroups(found->second.job, *table);
  // Once for all members of a job that hear of one change.
  lives_changed_ = true;
  SettleSoon();
}

void Messages::LearnGroups(const std::string& job, const MemberTable& table) {
  for (const std::string& role : table.roles()) {
    const GroupId id = GroupIdOf(job, role);
    if (groups_.try_emplace(id, GroupName{job, role}).second) jobs_.at(job).groups.push_back(id);
  }
}

void Messages::Leave(const std::string& job) {
  --jobs_.at(job).mailboxes;
  // Messages for members that have left are refused by what the table says, so the names of a job
  // stay for as long as the node knows it.
  std::erase_if(jobs_, [this](const auto& entry) {
    const auto& [name, of_job] = entry;
    const auto known = [&](const GroupId& group) {
      return members_.ViewOf(name, groups_.at(group).role) != nullptr;
    };
    if (of_job.mailboxes > 0 || std::any_of(of_job.groups.begin(), of_job.groups.end(), known)) {
      return false;
    }
    for (const GroupId& group : of_job.groups) groups_.erase(group);
    return true;
  });
}

const Member* Messages::FindMember(const GroupId& group, uint32_t rank) const {
  const auto name = groups_.find(group);
  if (name == groups_.end()) return nullptr;
  const GroupView* const view = members_.ViewOf(name->second.job, name->second.role);
  if (view == nullptr || rank >= view->members.size()) return nullptr;
  return &view->members[rank];
}

std::optional<KnownLife> Messages::Find(const GroupId& group, uint32_t rank) const {
  const Member* const member = FindMember(group, rank);
  if (member == nullptr || member->state == MemberState::kAbsent) return std::nullopt;
  // A member of this node that leaves takes no messages, although it is still in the table.
  const bool leaving = members_.IsDetached(groups_.find(group)->second.job, *member);
  return KnownLife{member->life, member->live() && !leaving};
}

// Requests of clients.

SendId Messages::Send(MemberId from, absl::string_view role, uint32_t rank,
                      std::optional<uint64_t> life, std::string bytes, Instant deadline,
                      Done done) {
  const SendId send = ++last_send_;
  const auto mailbox = mailboxes_.find(from);
  PHALANX_CHECK(mailbox != mailboxes_.end(), "members that have begun send");
  sending_.emplace(send, Sending{from, std::move(done)});
  mailbox->second.sends.insert(send);
  const auto target = TargetOf(mailbox->second, role, rank, life);
  // Errors take the way of answers, so that `done` is never called inside Send.
  if (!target.ok()) {
    effects_.push_back(MessageCore::Complete{send, target.status()});
  } else if (bytes.size() > kMaxMessageBytes) {
    effects_.push_back(MessageCore::Complete{
        send,
        absl::InvalidArgumentError(absl::StrCat("a message of ", bytes.size(), " bytes; at most ",
                                                kMaxMessageBytes, " are allowed"))});
  } else {
    core_.Send(send, mailbox->second.key, *target,
               std::make_shared<const std::string>(std::move(bytes)), deadline, control_.Now());
  }
  SettleSoon();
  return send;
}

absl::StatusOr<MessageCore::Target> Messages::TargetOf(const Mailbox& from, absl::string_view role,
                                                       uint32_t rank,
                                                       std::optional<uint64_t> life) const {
  const std::string name = absl::StrCat("job ", from.job, ", role ", role, ", rank ", rank);
  const GroupView* const view = members_.ViewOf(from.job, role);
  if (view == nullptr) {
    return absl::UnavailableError(absl::StrCat(name, ": no task of this role has joined"));
  }
  if (rank >= view->members.size()) {
    return absl::InvalidArgumentError(absl::StrCat(name, ": the world is ", view->world));
  }
  const Member& member = view->members[rank];
  if (!member.live()) {
    return absl::UnavailableError(absl::StrCat(
        name, member.state == MemberState::kAbsent ? " has not joined" : " has ended"));
  }
  if (life.has_value() && *life != member.life) {
    return absl::UnavailableError(
        absl::StrCat(name, ": life ", *life, " has ended; the member's life is ", member.life));
  }
  return MessageCore::Target{{GroupIdOf(from.job, role), rank, member.life},
                             {member.node, member.address}};
}

void Messages::Cancel(SendId send) {
  const auto sending = sending_.find(send);
  if (sending == sending_.end()) return;
  mailboxes_.at(sending->second.from).sends.erase(send);
  sending_.erase(sending);
  core_.Cancel(send);
  SettleSoon();
}

void Messages::Taken(MemberId member, absl::string_view role, uint32_t rank, uint64_t life,
                     uint64_t stream, uint64_t cost) {
  const auto mailbox = mailboxes_.find(member);
  if (mailbox == mailboxes_.end()) return;
  core_.Taken(mailbox->second.key, {GroupIdOf(mailbox->second.job, role), rank, life}, stream,
              cost);
  SettleSoon();
}

// Links.

absl::StatusOr<absl::Span<char>> Messages::PlaceFor(const NodeKey& from, absl::string_view header,
                                                    size_t payload_bytes) {
  PHALANX_RETURN_IF_ERROR(DecodeMessageHeader(header).status());
  if (payload_bytes > kMaxMessageBytes) {
    return absl::InvalidArgumentError(absl::StrCat("a message of ", payload_bytes, " bytes"));
  }
  // The link has memory for these, and OnMessage copies them.
  if (payload_bytes <= net::NodeLinks::kMaxUnplacedBytes) return absl::Span<char>();
  // A link receives one payload at a time, so each node needs one place only.
  std::shared_ptr<std::string>& place = places_[from];
  place = std::make_shared<std::string>(payload_bytes, '\0');
  return absl::MakeSpan(place->data(), place->size());
}

void Messages::OnMessage(const NodeKey& from, absl::string_view header, absl::Span<char> payload) {
  MessageBytes bytes;
  if (payload.size() > net::NodeLinks::kMaxUnplacedBytes) {
    bytes = std::move(places_.extract(from).mapped());
  } else if (!payload.empty()) {
    bytes = std::make_shared<const std::string>(payload.data(), payload.size());
  }
  const absl::StatusOr<MessageHeader> decoded = DecodeMessageHeader(header);
  const absl::Status status = decoded.ok()
                                  ? core_.Arrived(from, *decoded, std::move(bytes), control_.Now())
                                  : decoded.status();
  if (!status.ok()) links_.Forget(from);
  Settle();
}

void Messages::OnLost(const NodeKey& peer, const absl::Status& why) {
  places_.erase(peer);
  core_.PeerLost(peer, why);
  Settle();
}

void Messages::Carry(MessageCore::Transmit transmit) {
  // An answer knows the node by its key alone. If the link must be dialed, the table has the
  // address.
  if (transmit.peer.address.empty()) {
    const Member* const member = FindMember(transmit.header.to.group, transmit.header.to.rank);
    if (member != nullptr && member->node == transmit.peer.key) {
      transmit.peer.address = member->address;
    }
  }
  const absl::string_view payload =
      transmit.bytes == nullptr ? absl::string_view() : absl::string_view(*transmit.bytes);
  const absl::Status sent = links_.Send(transmit.peer, net::LinkService::kMessages,
                                        Encode(transmit.header), payload, transmit.bytes);
  if (sent.ok()) return;
  // The stream has a gap now, so it is over, on both sides. The core hears of each loss once: a
  // second time would be the loss of what was sent in between.
  if (links_.Contains(transmit.peer.key)) return links_.Forget(transmit.peer.key);
  if (!unreachable_.insert(transmit.peer.key).second) return;
  // Posted, because Transmit is still going through the effects of the core.
  control_.Post(guard_.Wrap([this, peer = transmit.peer.key, sent] {
    unreachable_.erase(peer);
    core_.PeerLost(peer, sent);
    Settle();
  }));
}

// Effects.

void Messages::Transmit() {
  for (MessageCore::Effect& effect : core_.TakeEffects()) {
    if (auto* const transmit = std::get_if<MessageCore::Transmit>(&effect)) {
      Carry(std::move(*transmit));
    } else {
      effects_.push_back(std::move(effect));
    }
  }
  SetTimer();
}

void Messages::SettleSoon() {
  Transmit();
  if ((effects_.empty() && !lives_changed_) || std::exchange(settle_posted_, true)) return;
  control_.Post(guard_.Wrap([this] {
    settle_posted_ = false;
    Settle();
  }));
}

void Messages::Settle() {
  if (std::exchange(lives_changed_, false)) core_.LivesChanged();
  Transmit();
  while (!effects_.empty()) {
    const MessageCore::Effect effect = std::move(effects_.front());
    // Removed before the callback, which can send a message and so add effects.
    effects_.pop_front();
    if (const auto* const deliver = std::get_if<MessageCore::Deliver>(&effect)) {
      Deliver(*deliver);
    } else {
      Complete(std::get<MessageCore::Complete>(effect));
    }
  }
}

void Messages::Deliver(const MessageCore::Deliver& message) {
  // The member can have ended since.
  const auto member = by_key_.find(message.to);
  const auto from = groups_.find(message.from.group);
  if (member == by_key_.end() || from == groups_.end()) return;
  const Mailbox& mailbox = mailboxes_.at(member->second);
  mailbox.owner->OnMessage(member->second, {from->second.role, message.from.rank, message.from.life,
                                            message.stream, message.bytes});
}

void Messages::Complete(const MessageCore::Complete& complete) {
  const auto sending = sending_.find(complete.send);
  if (sending == sending_.end()) return;
  Done done = std::move(sending->second.done);
  mailboxes_.at(sending->second.from).sends.erase(complete.send);
  // Removed before the callback, which can send again or end the member.
  sending_.erase(sending);
  done(complete.status);
}

void Messages::SetTimer() {
  const std::optional<Instant> next = core_.next_tick();
  if (timer_ != 0 && (!next.has_value() || *next != timer_at_)) {
    control_.Cancel(std::exchange(timer_, 0));
  }
  if (!next.has_value() || timer_ != 0) return;
  timer_at_ = *next;
  timer_ = control_.RunAt(*next, [this] {
    timer_ = 0;
    core_.Tick(control_.Now());
    Settle();
  });
}

}  // namespace phalanx::jobs
