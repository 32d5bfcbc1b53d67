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
  for (const v1::Probe::Peer& peer : probe.peers()) {
    const NodeKey key = directory::FromProto(peer.key());
    if (!key.valid() || key == self_ || peer.address().empty()) continue;
    if (dialing_.contains({shard, key}) || dialing_.size() >= directory::kMaxProbedPeers) continue;
    const uint64_t serial = next_serial_++;
    net::PullSpec spec;
    spec.sender = key;
    spec.address = peer.address();
    spec.slices = 0;
    spec.progress = std::make_shared<net::PullProgress>();
    auto progress = spec.progress;
    const auto handle = data_plane_->StartPull(
        std::move(spec),
        turns_.Guarded([this, shard, key, serial](const net::PullOutcome& outcome) {
          OnConnected(shard, key, serial, outcome.status);
        }));
    dialing_[{shard, key}] = {executor_.Now() + patience_, serial, handle, std::move(progress)};
  }
}

void ConnectionProber::OnConnected(int shard, const NodeKey& peer, uint64_t serial,
                                   const absl::Status& status) {
  const auto at = dialing_.find({shard, peer});
  // It was given up, and a later probe tries the peer again.
  if (at == dialing_.end() || at->second.serial != serial) return;
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
    Dial& dial = at->second;
    if (dial.due <= now) {
      // The handshake has begun since, or the I/O loop has not begun to dial.
      const Instant due = dial.progress->ConnectionDue(patience_);
      dial.due = due.infinite() ? now + patience_ : due;
    }
    if (dial.due > now) {
      ++at;
      continue;
    }
    const auto& [shard, peer] = at->first;
    AddUnreached(peer, absl::StatusCode::kDeadlineExceeded, by_shard[shard]);
    data_plane_->CancelPull(dial.handle);
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
