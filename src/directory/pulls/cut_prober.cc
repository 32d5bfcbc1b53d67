#include "src/directory/pulls/cut_prober.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "src/common/defects.h"
#include "src/directory/core/validate.h"

namespace phalanx::directory {
namespace {

// Nodes are asked whether they reach one sender at most so often in a lease.
constexpr int kBatchesInLease = 8;

}  // namespace

void CutProber::RunPending() {
  for (const auto& [receiver, sender] : pairs_.TakeNewCuts()) {
    if (DefectActive(Defect::kCutsNotProbed)) return;
    Node* const to = nodes_.Find(receiver);
    if (to != nullptr && to->connected) ProbeSenders(*to, sender);
    Node* const from = nodes_.Find(sender);
    if (from != nullptr && from->connected) ProbeSender(receiver, *from);
  }
}

void CutProber::ProbeSenders(Node& receiver, const NodeKey& sender) {
  if (receiver.next_probe_of_senders > context_.now) return;
  receiver.next_probe_of_senders = context_.now + context_.options.lease;
  v1::Probe probe;
  const auto& nodes = nodes_.all();
  // From the sender on, so that not always the same few carry the probes of a large cluster.
  auto at = nodes.upper_bound(sender);
  for (size_t i = 0; i < nodes.size() && i < kMaxProbedPeers + 2; ++i, ++at) {
    if (at == nodes.end()) at = nodes.begin();
    const auto& [key, node] = *at;
    if (key == receiver.key || key == sender || !node->connected) continue;
    if (static_cast<size_t>(probe.peers_size()) < kMaxProbedPeers) AddPeer(*node, probe);
  }
  if (!probe.peers().empty()) *outbox_.Send(receiver.key).mutable_probe() = std::move(probe);
}

void CutProber::ProbeSender(const NodeKey& receiver, Node& sender) {
  Node::ReachRound& round = sender.reach_round;
  if (round.next > context_.now) return;
  if (round.end <= context_.now) {
    // Continues behind the nodes of the last round: a large cluster has more than one round asks.
    const NodeKey last = round.last.valid() ? round.last : sender.key;
    round = Node::ReachRound();
    round.end = context_.now + context_.options.lease;
    round.last = last;
  }
  // Until the nodes that are asked now have answered.
  round.next = context_.now + context_.options.lease / kBatchesInLease;
  const auto& nodes = nodes_.all();
  auto at = nodes.upper_bound(round.last);
  for (size_t asked = 0; round.visited < nodes.size() && asked < kMaxProbedPeers; ++at) {
    if (at == nodes.end()) at = nodes.begin();
    const auto& [key, node] = *at;
    round.last = key;
    ++round.visited;
    if (key == receiver || key == sender.key || !node->connected) continue;
    AddPeer(sender, *outbox_.Send(key).mutable_probe());
    ++asked;
  }
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
