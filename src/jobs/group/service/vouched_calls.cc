#include "src/jobs/group/service/vouched_calls.h"

#include <algorithm>

#include "src/common/defects.h"

namespace phalanx::jobs {

void VouchedCalls::OnView(const GroupView& view) {
  if (view.epoch < list_.epoch) return;
  GroupList list = MakeGroupList(view, self_);
  const bool same = list.digest == list_.digest && list_.shape.world > 0;
  list_ = std::move(list);
  if (same) return;
  // Questions of others stay: they can be of this list, or of one that follows.
  for (auto& [node, peer] : peers_) {
    peer.ended = 0;
    peer.asked = 0;
    peer.said = 0;
  }
  std::erase_if(peers_, [this](const auto& peer) {
    return list_.IndexOf(peer.first) < 0 && !askers_.contains(peer.first);
  });
  // Without a live member this node is out of the group, whose calls may begin anew with 1.
  if (list_.self < 0) upto_ = 0;
}

void VouchedCalls::OnMessage(const NodeKey& from, const GroupHeader& header) {
  // Only nodes that were asked vouch.
  if (header.kind == GroupMessage::kVouch && !peers_.contains(from)) return;
  Peer& peer = peers_[from];
  if (header.list == list_.digest) peer.ended = std::max(peer.ended, header.call);
  if (header.kind == GroupMessage::kVouch) return;
  // It counts nothing that it was sent under another list.
  if (peer.list != header.list) peer.said = 0;
  peer.list = header.list;
  peer.epoch = header.epoch;
  peer.question = header.call;
  askers_.insert(from);
}

// What was sent on the link is lost, so the node asks again, and so does the other one. A process
// that has ended answers no more: a list without it follows.
void VouchedCalls::OnLost(const NodeKey& node, const absl::Status& why) {
  askers_.erase(node);
  const auto found = peers_.find(node);
  if (found == peers_.end()) return;
  Peer& peer = found->second;
  peer.asked = absl::IsAborted(why) ? kMaxCallNumber : 0;
  peer.said = 0;
}

void VouchedCalls::Advance(const GroupStatus& core, uint64_t wanted) {
  if (!askers_.empty()) Answer(core.ended);
  behind_ = wanted > core.ended;
  const uint64_t last = std::min(wanted, core.ended);
  upto_ = std::max(upto_, core.settled);
  if (last <= upto_ || list_.self < 0) return;
  Ask(last);
  uint64_t least = core.ended;
  uint64_t greatest = 0;
  for (const GroupList::Node& node : list_.nodes) {
    if (node.key == self_) continue;
    least = std::min(least, peers_[node.key].ended);
    greatest = std::max(greatest, peers_[node.key].ended);
  }
  if (DefectActive(Defect::kGroupOneVouchEnough)) least = std::min(greatest, core.ended);
  upto_ = std::max(upto_, least);
}

bool VouchedCalls::waits() const {
  return behind_ || std::any_of(askers_.begin(), askers_.end(), [this](const NodeKey& node) {
           return peers_.at(node).list == list_.digest;
         });
}

void VouchedCalls::Answer(uint64_t ended) {
  for (auto at = askers_.begin(); at != askers_.end();) {
    Peer& peer = peers_[*at];
    const int index = list_.IndexOf(*at);
    // A node that knows an older list asks again when it knows this one. One that knows another
    // list of the same epoch, or a newer one, waits until this node knows it, too.
    bool over = peer.epoch < list_.epoch;
    if (index >= 0 && peer.list == list_.digest) {
      if (ended > peer.said) {
        peer.said = ended;
        Send(list_.nodes[static_cast<size_t>(index)], GroupMessage::kVouch, ended);
      }
      over = peer.said >= peer.question;
    }
    at = over ? askers_.erase(at) : std::next(at);
  }
}

void VouchedCalls::Ask(uint64_t call) {
  for (const GroupList::Node& node : list_.nodes) {
    if (node.key == self_) continue;
    Peer& peer = peers_[node.key];
    if (peer.ended >= call || peer.asked >= call) continue;
    peer.asked = call;
    if (DefectActive(Defect::kGroupVouchedEarly)) peer.ended = call;
    peer.said = std::max(peer.said, call);
    Send(node, GroupMessage::kAskVouch, call);
  }
}

void VouchedCalls::Send(const GroupList::Node& to, GroupMessage kind, uint64_t call) {
  const GroupHeader header{
      .kind = kind, .group = group_, .list = list_.digest, .epoch = list_.epoch, .call = call};
  sends_.push_back({.to = to, .header = EncodeHeader(header)});
}

}  // namespace phalanx::jobs
