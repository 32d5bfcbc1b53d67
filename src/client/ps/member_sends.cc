#include "src/client/ps/member_sends.h"

#include <utility>

namespace phalanx::ps::internal {

namespace local = phalanx::internal::local;

void MemberSends::Add(int rank, uint64_t life, std::string bytes) {
  unsent_ += bytes.size();
  Receiver& receiver = receivers_[rank];
  receiver.queue.push_back({life, std::move(bytes)});
  SendTo(rank, receiver);
}

// Two limits: that of one receiver keeps a slow one from holding up the others, that of all keeps
// the node within what it takes of a member. A message larger than both goes alone.
void MemberSends::SendTo(int rank, Receiver& receiver) {
  while (!receiver.queue.empty() && connection().CanSend()) {
    const uint64_t bytes = receiver.queue.front().bytes.size();
    if (receiver.at_node > 0 && receiver.at_node + bytes > kSendWindow) return;
    if (at_node_ > 0 && at_node_ + bytes > kSendWindowOfAll) return;
    const Queued next = std::move(receiver.queue.front());
    receiver.queue.pop_front();
    receiver.at_node += bytes;
    at_node_ += bytes;
    const uint64_t request = connection().NewRequests(1);
    under_way_[request] = {rank, next.life, bytes};
    local::SendMessage message;
    message.request = request;
    message.member = member_;
    message.role = role_;
    message.rank = static_cast<uint32_t>(rank);
    message.has_life = true;
    message.life = next.life;
    message.bytes = next.bytes;
    connection().SendPart(shared_from_this(), message, request);
  }
}

void MemberSends::OnAnswer(uint64_t request, const local::Answer& answer) {
  connection().EndPart(request);
  const auto found = under_way_.find(request);
  if (found == under_way_.end()) return;
  const UnderWay sent = found->second;
  under_way_.erase(found);
  if (lost_ == nullptr) return;
  Receiver& receiver = receivers_[sent.rank];
  receiver.at_node -= sent.bytes;
  at_node_ -= sent.bytes;
  unsent_ -= sent.bytes;
  left_[sent.rank] += sent.bytes;
  // Any other answer says why the message was not passed on.
  if (!Expect<local::Counted>(answer).ok()) lost_(sent.rank, sent.life);
  // The room of this message can be that of any queue.
  for (auto& [rank, waiting] : receivers_) SendTo(rank, waiting);
}

// The connection has ended, and the member with it.
void MemberSends::OnFailure(const absl::Status&) {
  if (done()) return;
  Stop();
  connection().Finish(*this);
}

void MemberSends::Stop() {
  lost_ = nullptr;
  receivers_.clear();
  unsent_ = 0;
  left_.clear();
}

}  // namespace phalanx::ps::internal
