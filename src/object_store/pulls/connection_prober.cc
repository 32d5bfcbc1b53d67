#include "src/object_store/pulls/connection_prober.h"

#include <algorithm>
#include <utility>

#include "src/directory/core/validate.h"

namespace phalanx::object_store {

ConnectionProber::ConnectionProber(NodeKey self, absl::Duration connect_patience,
                                   Executor& executor, Turns& turns, ShardChannel& channel)
    : self_(self),
      patience_(connect_patience * 7 / 8),
      executor_(executor),
      turns_(turns),
      channel_(channel) {}

ConnectionProber::~ConnectionProber() {
  for (const auto& [key, dial] : dialing_) data_plane_->CancelPull(dial.handle);
}

void ConnectionProber::OnProbe(int shard, const v1::Probe& probe) {
  const Instant due = executor_.Now() + patience_;
  for (const v1::Probe::Peer& peer : probe.peers()) {
    const NodeKey key = directory::FromProto(peer.key());
    if (!key.valid() || key == self_ || peer.address().empty()) continue;
    if (dialing_.contains({shard, key})) continue;
    net::PullSpec spec;
    spec.sender = key;
    spec.address = peer.address();
    spec.slices = 0;
    const auto handle = data_plane_->StartPull(
        std::move(spec), turns_.Guarded([this, shard, key, due](const net::PullOutcome& outcome) {
          OnConnected(shard, key, due, outcome.status);
        }));
    dialing_[{shard, key}] = {due, handle};
  }
}

void ConnectionProber::OnConnected(int shard, const NodeKey& peer, Instant due,
                                   const absl::Status& status) {
  const auto at = dialing_.find({shard, peer});
  // It was given up, and a later probe tries the peer again.
  if (at == dialing_.end() || at->second.due != due) return;
  dialing_.erase(at);
  if (!absl::IsUnavailable(status) && !absl::IsDeadlineExceeded(status)) return;
  v1::NodeMessage message;
  AddUnreached(peer, status.code(), message);
  channel_.SendTo(shard, std::move(message));
}

void ConnectionProber::AddUnreached(const NodeKey& peer, absl::StatusCode code,
                                    v1::NodeMessage& to) {
  v1::ProbeReport::Unreached& out = *to.mutable_probe_report()->add_unreached();
  directory::ToProto(peer, out.mutable_key());
  out.set_code(static_cast<int32_t>(code));
}

void ConnectionProber::Expire(Instant now) {
  std::map<int, v1::NodeMessage> by_shard;
  for (auto at = dialing_.begin(); at != dialing_.end();) {
    if (at->second.due > now) {
      ++at;
      continue;
    }
    const auto& [shard, peer] = at->first;
    AddUnreached(peer, absl::StatusCode::kDeadlineExceeded, by_shard[shard]);
    data_plane_->CancelPull(at->second.handle);
    at = dialing_.erase(at);
  }
  for (auto& [shard, message] : by_shard) channel_.SendTo(shard, std::move(message));
}

Instant ConnectionProber::NextDeadline() const {
  Instant next = Instant::Infinite();
  for (const auto& [key, dial] : dialing_) next = std::min(next, dial.due);
  return next;
}

}  // namespace phalanx::object_store
