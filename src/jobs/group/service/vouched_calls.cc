#include "src/jobs/group/service/vouched_calls.h"

#include <algorithm>

#include "src/common/defects.h"

namespace phalanx::jobs {

void VouchedCalls::OnList(std::shared_ptr<const GroupList> list) {
  const bool same = list->digest == list_->digest && list_->shape.world > 0;
  list_ = std::move(list);
  // Questions of others stay: they can be of this list, or of one that follows.
  questions_.merge(early_);
  if (same) return;
  questions_.merge(waiting_);
  for (auto& [node, peer] : peers_) {
    peer.ended = 0;
    peer.said = 0;
  }
  std::erase_if(peers_, [this](const auto& peer) {
    return list_->IndexOf(peer.first) < 0 && !questions_.contains(peer.first);
  });
  const size_t others = list_->nodes.size() - (list_->self >= 0 ? 1 : 0);
  vouches_.clear();
  if (others > 0) vouches_[0] = others;
  asked_ = 0;
  unasked_.clear();
  // Without a live member this node is out of the group, whose calls may begin anew with 1.
  if (list_->self < 0) upto_ = 0;
}

void VouchedCalls::OnMessage(const NodeKey& from, const GroupHeader& header) {
  // Only nodes that were asked vouch.
  if (header.kind == GroupMessage::kVouch && !peers_.contains(from)) return;
  if (from == self_) return;
  Peer& peer = peers_[from];
  if (header.list == list_->digest && list_->IndexOf(from) >= 0) Count(peer, header.call);
  if (header.kind == GroupMessage::kVouch) return;
  // It counts nothing that it was sent under another list.
  if (peer.list != header.list) peer.said = 0;
  peer.list = header.list;
  peer.epoch = header.epoch;
  peer.question = header.call;
  waiting_.erase(from);
  early_.erase(from);
  questions_.insert(from);
}

// REQUIRES: the peer is another node of the list.
void VouchedCalls::Count(Peer& peer, uint64_t ended) {
  if (ended <= peer.ended) return;
  const auto before = vouches_.find(peer.ended);
  if (--before->second == 0) vouches_.erase(before);
  peer.ended = ended;
  ++vouches_[ended];
}

// What was sent on the link is lost, so the node asks again, and so does the other one. A process
// that has ended answers no more: a list without it follows.
void VouchedCalls::OnLost(const NodeKey& node, const absl::Status& why) {
  questions_.erase(node);
  waiting_.erase(node);
  early_.erase(node);
  const auto found = peers_.find(node);
  if (found == peers_.end()) return;
  Peer& peer = found->second;
  peer.over = absl::IsAborted(why);
  peer.said = 0;
  if (list_->IndexOf(node) >= 0) unasked_.insert(node);
}

void VouchedCalls::Advance(const GroupStatus& core, uint64_t wanted) {
  if (std::exchange(answered_, core.ended) != core.ended) questions_.merge(waiting_);
  for (const NodeKey& node : std::exchange(questions_, {})) Answer(node, core.ended);
  behind_ = wanted > core.ended;
  const uint64_t last = std::min(wanted, core.ended);
  upto_ = std::max(upto_, core.settled);
  if (last <= upto_ || list_->self < 0) return;
  Ask(last);
  const bool alone = vouches_.empty();
  uint64_t least = alone ? core.ended : std::min(core.ended, vouches_.begin()->first);
  if (DefectActive(Defect::kGroupOneVouchEnough) && !alone) {
    least = std::min(core.ended, vouches_.rbegin()->first);
  }
  upto_ = std::max(upto_, least);
}

void VouchedCalls::Answer(const NodeKey& node, uint64_t ended) {
  Peer& peer = peers_.at(node);
  const int index = list_->IndexOf(node);
  if (index < 0 || peer.list != list_->digest) {
    // A node that knows an older list asks again when it knows this one. One that knows another
    // list of the same epoch, or a newer one, waits until this node knows it, too.
    if (peer.epoch >= list_->epoch) early_.insert(node);
    return;
  }
  if (ended > peer.said) {
    peer.said = ended;
    Send(list_->nodes[static_cast<size_t>(index)], GroupMessage::kVouch, ended);
  }
  if (peer.said < peer.question) waiting_.insert(node);
}

// Asks the nodes that have not vouched for the call, each once.
void VouchedCalls::Ask(uint64_t call) {
  if (call > asked_) {
    asked_ = call;
    unasked_.clear();
    for (const GroupList::Node& node : list_->nodes) {
      if (node.key != self_) AskNode(node);
    }
  }
  for (const NodeKey& node : std::exchange(unasked_, {})) {
    AskNode(list_->nodes[static_cast<size_t>(list_->IndexOf(node))]);
  }
}

void VouchedCalls::AskNode(const GroupList::Node& node) {
  Peer& peer = peers_[node.key];
  if (peer.ended >= asked_ || peer.over) return;
  peer.said = std::max(peer.said, asked_);
  Send(node, GroupMessage::kAskVouch, asked_);
  if (DefectActive(Defect::kGroupVouchedEarly)) Count(peer, asked_);
}

void VouchedCalls::Send(const GroupList::Node& to, GroupMessage kind, uint64_t call) {
  const GroupHeader header{
      .kind = kind, .group = group_, .list = list_->digest, .epoch = list_->epoch, .call = call};
  sends_.push_back({.to = to, .header = EncodeHeader(header)});
}

}  // namespace phalanx::jobs
