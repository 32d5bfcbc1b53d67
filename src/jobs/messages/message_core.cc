#include "src/jobs/messages/message_core.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "src/common/check.h"
#include "src/common/defects.h"
#include "src/common/status_macros.h"

namespace phalanx::jobs {
namespace {

// What a sender may have unanswered when it sends another message of any length.
constexpr uint64_t kFreeWindow = kMessageWindow / 4;
// Less than a step is unknown to the receiver's node, and less than a step is not reported to the
// sender.
static_assert(kFreeWindow >= 2 * kCreditStep);
constexpr uint64_t kMostUnanswered = std::max(
    {kMessageWindow, kFewMessagesWindow, kFreeWindow + kMaxMessageBytes + kMessageOverhead});

size_t SizeOf(const MessageBytes& bytes) { return bytes == nullptr ? 0 : bytes->size(); }

absl::Status NotLive(const LifeKey& member, const std::optional<KnownLife>& known) {
  if (!known.has_value()) {
    return absl::UnavailableError(absl::StrCat("no member of rank ", member.rank, " has joined"));
  }
  if (known->life == member.life) {
    return absl::UnavailableError(absl::StrCat("the member (", member.ToString(), ") has ended"));
  }
  return absl::UnavailableError(absl::StrCat("the member (", member.ToString(),
                                             ") has ended: its life is ", known->life, " now"));
}

}  // namespace

// Members of this node.

void MessageCore::Begin(const LifeKey& member, Instant now) {
  now_ = now;
  members_.emplace(member, 0);
  UnparkAll();
  RunLocal();
}

void MessageCore::End(const LifeKey& member) {
  // Nothing is sent about the end: other nodes learn of it from their tables.
  auto outgoing = outgoing_.lower_bound({member, LifeKey()});
  while (outgoing != outgoing_.end() && outgoing->first.first == member) {
    for (const SendId send : outgoing->second.waiting) {
      const auto waiting = waiting_.find(send);
      deadlines_.erase({waiting->second.deadline, send});
      waiting_.erase(waiting);
    }
    outgoing = outgoing_.erase(outgoing);
  }
  auto incoming = incoming_.lower_bound({member, LifeKey()});
  while (incoming != incoming_.end() && incoming->first.first == member) {
    incoming = incoming_.erase(incoming);
  }
  members_.erase(member);
}

// Sending.

void MessageCore::Send(SendId send, const LifeKey& from, const Target& to, MessageBytes bytes,
                       Instant deadline, Instant now) {
  now_ = now;
  const auto member = members_.find(from);
  PHALANX_CHECK(member != members_.end(), "members of this node send");
  PHALANX_CHECK(SizeOf(bytes) <= kMaxMessageBytes, "messages are bounded");
  const std::optional<KnownLife> known = lookup_.Find(to.key.group, to.key.rank);
  if (!known.has_value() || known->life != to.key.life || !known->live) {
    effects_.push_back(Complete{send, NotLive(to.key, known)});
    return;
  }
  const StreamKey key = {from, to.key};
  const auto [at, is_new] = outgoing_.try_emplace(key);
  Outgoing& stream = at->second;
  // A number is never used twice, so that late answers to an earlier stream are recognized.
  if (is_new) stream.stream = ++last_stream_;
  stream.peer = to.peer;
  // One Send reports the loss of all messages before it. The next one goes on.
  if (std::exchange(stream.lost, false)) {
    effects_.push_back(
        Complete{send, absl::DataLossError(absl::StrCat(
                           "messages before this one to the member (", to.key.ToString(),
                           ") were lost with the connection to node ", to.peer.key.ToString()))});
    return;
  }
  const uint64_t cost = CostOf(SizeOf(bytes));
  if (member->second + cost > kMaxWaitingBytes) {
    effects_.push_back(
        Complete{send, absl::ResourceExhaustedError(absl::StrCat(
                           "the member (", from.ToString(), ") has ", member->second,
                           " bytes that wait for other members to take earlier messages"))});
    return;
  }
  member->second += cost;
  waiting_.emplace(send, Waiting{key, std::move(bytes), deadline});
  if (!deadline.infinite()) deadlines_.insert({deadline, send});
  // Behind all that wait, so that the messages of a stream stay in order.
  stream.waiting.insert(stream.waiting.end(), send);
  Flush(key, stream);
  RunLocal();
}

bool MessageCore::MayLeave(const Outgoing& stream, uint64_t cost) {
  const uint64_t unanswered = stream.sent - stream.taken;
  if (unanswered <= kFreeWindow || unanswered + cost <= kMessageWindow) return true;
  // The oldest of the last kFewMessages is answered.
  const bool few = stream.sent_behind[stream.count % kFewMessages] <= stream.taken;
  return few && unanswered + cost <= kFewMessagesWindow;
}

void MessageCore::Flush(const StreamKey& key, Outgoing& stream) {
  while (!stream.waiting.empty()) {
    const SendId send = *stream.waiting.begin();
    const MessageBytes bytes = waiting_.at(send).bytes;
    if (!MayLeave(stream, CostOf(SizeOf(bytes)))) return;
    // The Send ends when its message leaves. It does not wait for the arrival.
    stream.waiting.erase(stream.waiting.begin());
    Finish(send, absl::OkStatus());
    Leave(key, stream, bytes);
  }
}

void MessageCore::Leave(const StreamKey& key, Outgoing& stream, MessageBytes bytes) {
  stream.sent += CostOf(SizeOf(bytes));
  stream.sent_behind[stream.count % kFewMessages] = stream.sent;
  const MessageHeader header = {MessageKind::kMessage, key.first, key.second, stream.stream,
                                stream.count++};
  Post({stream.peer, header, std::move(bytes)});
}

// Removes a Send that waits, whose place in its stream the caller removes.
void MessageCore::Finish(SendId send, absl::Status status) {
  const auto waiting = waiting_.find(send);
  members_.at(waiting->second.key.first) -= CostOf(SizeOf(waiting->second.bytes));
  deadlines_.erase({waiting->second.deadline, send});
  waiting_.erase(waiting);
  effects_.push_back(Complete{send, std::move(status)});
}

void MessageCore::FailWaiting(Outgoing& stream, const absl::Status& why) {
  for (const SendId send : std::exchange(stream.waiting, {})) Finish(send, why);
}

void MessageCore::Cancel(SendId send) {
  const auto waiting = waiting_.find(send);
  if (waiting == waiting_.end()) return;
  const StreamKey key = waiting->second.key;
  Outgoing& stream = outgoing_.at(key);
  stream.waiting.erase(send);
  Finish(send, absl::CancelledError("the message was cancelled"));
  // A shorter one behind it can leave.
  Flush(key, stream);
  RunLocal();
}

void MessageCore::Post(Transmit transmit) {
  // Messages between members of one node obey the same rules, without a link.
  if (transmit.peer.key == self_) {
    local_.push_back(std::move(transmit));
  } else {
    effects_.push_back(std::move(transmit));
  }
}

void MessageCore::RunLocal() {
  // Dispatch can post more. The outer loop takes it, so the stack does not grow.
  if (std::exchange(running_local_, true)) return;
  while (!local_.empty()) {
    Transmit next = std::move(local_.front());
    local_.pop_front();
    const absl::Status status = Dispatch(self_, next.header, std::move(next.bytes));
    PHALANX_CHECK(status.ok(), "members of one node keep the rules");
  }
  running_local_ = false;
}

// Receiving.

absl::Status MessageCore::Arrived(const NodeKey& from, const MessageHeader& header,
                                  MessageBytes bytes, Instant now) {
  now_ = now;
  const absl::Status status = Dispatch(from, header, std::move(bytes));
  RunLocal();
  return status;
}

absl::Status MessageCore::Dispatch(const NodeKey& from, const MessageHeader& header,
                                   MessageBytes bytes) {
  switch (header.kind) {
    case MessageKind::kMessage:
      // Those of its stream that came before it go first.
      Unpark({header.from, header.to});
      return Message({from, header, std::move(bytes), now_ + kMaxParkedTime});
    case MessageKind::kCredit:
      return Credit(header);
    case MessageKind::kRefused:
      Refused(header);
      break;
  }
  return absl::OkStatus();
}

MessageCore::Verdict MessageCore::Judge(const StreamKey& key) const {
  const auto& [from, to] = key;
  const std::optional<KnownLife> sender = lookup_.Find(from.group, from.rank);
  // The message of an older life. Its sender is gone, so no answer is sent.
  if (sender.has_value() && sender->life > from.life) return Verdict::kDrop;
  const bool sender_known = sender.has_value() && sender->life == from.life;
  const bool here = members_.contains(to);
  if (here && sender_known) return Verdict::kAccept;
  if (here) return Verdict::kPark;
  // The sender's node can be ahead of this one: the update with the unknown life is on its way.
  const std::optional<KnownLife> target = lookup_.Find(to.group, to.rank);
  const bool may_come =
      !target.has_value() || target->life < to.life || (target->life == to.life && target->live);
  return may_come ? Verdict::kPark : Verdict::kRefuse;
}

absl::Status MessageCore::Message(Parked message) {
  const MessageHeader& header = message.header;
  const StreamKey key = {header.from, header.to};
  const Verdict verdict = Judge(key);
  if (verdict == Verdict::kDrop) return absl::OkStatus();
  if (verdict == Verdict::kAccept) return Accept(message.from, header, std::move(message.bytes));
  if (DefectActive(Defect::kMessageToOlderLife)) {
    MessageHeader to_newer = header;
    const std::optional<KnownLife> target = lookup_.Find(header.to.group, header.to.rank);
    to_newer.to.life = target.has_value() ? target->life : header.to.life;
    if (members_.contains(to_newer.to)) {
      return Accept(message.from, to_newer, std::move(message.bytes));
    }
  }
  const uint64_t cost = CostOf(SizeOf(message.bytes));
  if (verdict == Verdict::kPark && parked_bytes_ + cost <= kMaxParkedBytes) {
    parked_bytes_ += cost;
    parked_streams_[key].insert(++last_parked_);
    parked_.emplace(last_parked_, std::move(message));
  } else {
    Reply(message.from, MessageKind::kRefused, header, 0);
  }
  return absl::OkStatus();
}

// Tries the parked messages of a stream again, in their order. The verdict is the same for all of
// them, so those that stay parked cost nothing.
void MessageCore::Unpark(const StreamKey& key) {
  const auto stream = parked_streams_.find(key);
  if (stream == parked_streams_.end() || Judge(key) == Verdict::kPark) return;
  // A copy: TakeParked changes the list.
  const std::set<uint64_t> numbers = stream->second;
  for (const uint64_t number : numbers) {
    // A violation is noticed again by the next message of the stream, which comes over the link.
    (void)Message(TakeParked(number));
  }
}

void MessageCore::UnparkAll() {
  for (auto stream = parked_streams_.begin(); stream != parked_streams_.end();) {
    // Before Unpark, which can remove this stream and no other one.
    const StreamKey key = (stream++)->first;
    Unpark(key);
  }
}

MessageCore::Parked MessageCore::TakeParked(uint64_t number) {
  auto parked = parked_.extract(number);
  const MessageHeader& header = parked.mapped().header;
  const auto stream = parked_streams_.find({header.from, header.to});
  stream->second.erase(number);
  if (stream->second.empty()) parked_streams_.erase(stream);
  parked_bytes_ -= CostOf(SizeOf(parked.mapped().bytes));
  return std::move(parked.mapped());
}

absl::Status MessageCore::Accept(const NodeKey& from, const MessageHeader& header,
                                 MessageBytes bytes) {
  const StreamKey key = {header.to, header.from};
  const auto found = incoming_.find(key);
  // A sender that begins again after a loss uses another number, and counts from 0.
  const bool is_new = found == incoming_.end() || found->second.stream != header.stream;
  const uint64_t next = is_new ? 0 : found->second.count;
  // This node has refused a message before it, and the sender has not heard of that yet.
  if (header.count > next) {
    Reply(from, MessageKind::kRefused, header, 0);
    return absl::OkStatus();
  }
  // Links keep the order, so no message comes again.
  if (header.count < next) {
    return absl::InvalidArgumentError(
        absl::StrCat("message ", header.count, " of a stream, not ", next));
  }
  Incoming& stream = is_new ? incoming_[key] : found->second;
  if (is_new) stream = Incoming();
  stream.stream = header.stream;
  stream.node = from;
  const uint64_t cost = CostOf(SizeOf(bytes));
  if (stream.arrived - stream.taken + cost > kMostUnanswered) {
    return absl::InvalidArgumentError("messages without credit");
  }
  ++stream.count;
  stream.arrived += cost;
  effects_.push_back(Deliver{header.to, header.from, header.stream, bytes});
  if (DefectActive(Defect::kMessageTwice) && stream.count % 50 == 0) {
    effects_.push_back(Deliver{header.to, header.from, header.stream, bytes});
  }
  return absl::OkStatus();
}

void MessageCore::Taken(const LifeKey& member, const LifeKey& from, uint64_t stream,
                        uint64_t cost) {
  const auto found = incoming_.find({member, from});
  if (found == incoming_.end() || found->second.stream != stream) return;
  Incoming& incoming = found->second;
  // Never more than arrived, whatever the client says.
  incoming.taken = std::min(incoming.arrived, incoming.taken + cost);
  // A smaller step would cost an answer for almost every message.
  if (incoming.taken - incoming.credited < kCreditStep) return;
  incoming.credited = incoming.taken;
  if (DefectActive(Defect::kMessageCreditLost) && incoming.count % 5 == 0) return;
  MessageHeader header;
  header.from = from;
  header.to = member;
  header.stream = stream;
  Reply(incoming.node, MessageKind::kCredit, header, incoming.taken);
  RunLocal();
}

// Answers a message: from its target to its sender.
void MessageCore::Reply(const NodeKey& to, MessageKind kind, const MessageHeader& header,
                        uint64_t count) {
  Post({{to, ""}, {kind, header.to, header.from, header.stream, count}, nullptr});
}

absl::Status MessageCore::Credit(const MessageHeader& header) {
  const StreamKey key = {header.to, header.from};
  const auto found = outgoing_.find(key);
  // The stream is over at this end.
  if (found == outgoing_.end() || found->second.stream != header.stream) return absl::OkStatus();
  Outgoing& stream = found->second;
  // The credit is a running sum: it never falls, and never exceeds what was sent.
  if (header.count > stream.sent || header.count < stream.taken) {
    return absl::InvalidArgumentError(
        absl::StrCat("credit for ", header.count, " of ", stream.sent, " bytes"));
  }
  stream.taken = header.count;
  Flush(key, stream);
  return absl::OkStatus();
}

void MessageCore::Refused(const MessageHeader& header) {
  const auto found = outgoing_.find({header.to, header.from});
  if (found == outgoing_.end() || found->second.stream != header.stream) return;
  FailWaiting(found->second, NotLive(header.from, KnownLife{header.from.life, false}));
  // The refused message leaves a gap in the stream, so the stream is over.
  BeginAgain(found->second);
}

// What was not known to be taken may be lost; what follows is another stream.
void MessageCore::BeginAgain(Outgoing& stream) {
  const bool lost = stream.lost || stream.sent > stream.taken;
  const net::LinkPeer peer = stream.peer;
  stream = Outgoing();
  stream.peer = peer;
  stream.stream = ++last_stream_;
  stream.lost = lost;
}

// Changes.

void MessageCore::LivesChanged() {
  for (auto it = outgoing_.begin(); it != outgoing_.end();) {
    const LifeKey& target = it->first.second;
    const std::optional<KnownLife> known = lookup_.Find(target.group, target.rank);
    if (known.has_value() && known->life == target.life && known->live) {
      ++it;
      continue;
    }
    FailWaiting(it->second, NotLive(target, known));
    it = outgoing_.erase(it);
  }
  // Messages of a life that has just ended can still arrive; those of older ones are refused.
  std::erase_if(incoming_, [&](const auto& entry) {
    const LifeKey& sender = entry.first.second;
    const std::optional<KnownLife> known = lookup_.Find(sender.group, sender.rank);
    return known.has_value() && known->life > sender.life;
  });
  UnparkAll();
  RunLocal();
}

void MessageCore::PeerLost(const NodeKey& peer, const absl::Status& why) {
  for (auto& [key, stream] : outgoing_) {
    if (stream.peer.key != peer) continue;
    // Whatever the reason of the link was: the receiver could not be reached.
    FailWaiting(stream, absl::UnavailableError(why.message()));
    BeginAgain(stream);
  }
  std::erase_if(incoming_, [&](const auto& entry) { return entry.second.node == peer; });
  for (auto parked = parked_.begin(); parked != parked_.end();) {
    const auto& [number, message] = *parked++;
    if (message.from == peer) (void)TakeParked(number);
  }
}

// Time.

void MessageCore::Tick(Instant now) {
  now_ = now;
  while (!deadlines_.empty() && deadlines_.begin()->first <= now) {
    const SendId send = deadlines_.begin()->second;
    const StreamKey key = waiting_.at(send).key;
    Outgoing& stream = outgoing_.at(key);
    stream.waiting.erase(send);
    Finish(send, absl::DeadlineExceededError(
                     absl::StrCat("the member (", key.second.ToString(),
                                  ") has not taken the messages before this one in time")));
    Flush(key, stream);
  }
  // All messages are parked for the same time, so the first one is due first.
  while (!parked_.empty() && parked_.begin()->second.until <= now) {
    const Parked parked = TakeParked(parked_.begin()->first);
    Reply(parked.from, MessageKind::kRefused, parked.header, 0);
  }
  RunLocal();
}

std::optional<Instant> MessageCore::next_tick() const {
  if (deadlines_.empty() && parked_.empty()) return std::nullopt;
  Instant next = Instant::Infinite();
  if (!deadlines_.empty()) next = deadlines_.begin()->first;
  if (!parked_.empty()) next = std::min(next, parked_.begin()->second.until);
  return next;
}

}  // namespace phalanx::jobs
