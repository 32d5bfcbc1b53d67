#include "src/directory/pulls/cut_prober.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "src/common/defects.h"
#include "src/directory/core/validate.h"

namespace phalanx::directory {

void CutProber::RunPending() {
  for (const auto& [receiver, sender] : pairs_.TakeNewCuts()) {
    if (DefectActive(Defect::kCutsNotProbed)) return;
    const Instant next = context_.now + context_.options.lease;
    Node* const to = nodes_.Find(receiver);
    if (to != nullptr && to->connected && to->next_probe_of_senders <= context_.now) {
      to->next_probe_of_senders = next;
      v1::Probe probe;
      for (const Node* other : Others(receiver, sender)) AddPeer(*other, probe);
      if (!probe.peers().empty()) *outbox_.Send(receiver).mutable_probe() = std::move(probe);
    }
    Node* const from = nodes_.Find(sender);
    if (from != nullptr && from->connected && from->next_probe_by_receivers <= context_.now) {
      from->next_probe_by_receivers = next;
      for (const Node* other : Others(receiver, sender)) {
        AddPeer(*from, *outbox_.Send(other->key).mutable_probe());
      }
    }
  }
}

std::vector<Node*> CutProber::Others(const NodeKey& receiver, const NodeKey& sender) {
  std::vector<Node*> others;
  const auto& nodes = nodes_.all();
  // From there, so that not always the same few carry the probes of a large cluster.
  auto at = nodes.upper_bound(sender);
  for (size_t i = 0; i < nodes.size() && i < kMaxProbedPeers + 2; ++i, ++at) {
    if (at == nodes.end()) at = nodes.begin();
    const auto& [key, node] = *at;
    if (key == receiver || key == sender || !node->connected) continue;
    if (others.size() < kMaxProbedPeers) others.push_back(node.get());
  }
  return others;
}

void CutProber::AddPeer(const Node& peer, v1::Probe& probe) {
  ++context_.counters.probes;
  v1::Probe::Peer& out = *probe.add_peers();
  ToProto(peer.key, out.mutable_key());
  out.set_address(peer.info.address());
}

absl::Status CutProber::OnReport(const Node& node, const v1::ProbeReport& m) {
  if (static_cast<size_t>(m.unreached_size()) > kMaxProbedPeers) {
    return absl::InvalidArgumentError(absl::StrCat("a probe reports ", m.unreached_size(),
                                                   " peers; the limit is ", kMaxProbedPeers));
  }
  for (const v1::ProbeReport::Unreached& peer : m.unreached()) {
    const auto code = static_cast<absl::StatusCode>(peer.code());
    if (!FromProto(peer.key()).valid() || !FailedPairs::IsUnreached(code)) {
      return absl::InvalidArgumentError(
          absl::StrCat("a probe reports an invalid peer, or the code ", peer.code()));
    }
  }
  for (const v1::ProbeReport::Unreached& peer : m.unreached()) {
    pairs_.Remember(node.key, FromProto(peer.key()), static_cast<absl::StatusCode>(peer.code()),
                    context_.now);
  }
  // These cuts are not news to follow up: otherwise one lonely node would have all nodes probe.
  pairs_.TakeNewCuts();
  return absl::OkStatus();
}

}  // namespace phalanx::directory
