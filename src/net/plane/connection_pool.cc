#include "src/net/plane/connection_pool.h"

#include <iterator>
#include <utility>

namespace phalanx::net {

ConnectionPool::ConnectionPool(Executor& executor, absl::Duration idle_timeout,
                               size_t max_idle_per_peer)
    : executor_(executor), idle_timeout_(idle_timeout), max_idle_per_peer_(max_idle_per_peer) {}

ConnectionPool::~ConnectionPool() {
  while (!idle_.empty()) Remove(idle_.begin(), idle_.begin()->second.begin());
}

std::optional<ConnectionPool::Connection> ConnectionPool::Take(const Peer& peer) {
  while (true) {
    const auto found = idle_.find(peer);
    if (found == idle_.end()) return std::nullopt;
    Connection connection = Remove(found, std::prev(found->second.end()));
    // Another loop can have dropped the connection; the next one may still be usable.
    if (connection.ticket.Claim()) return connection;
  }
}

void ConnectionPool::Put(const Peer& peer, Connection connection) {
  // The connection closes with this call.
  if (max_idle_per_peer_ == 0) return;
  const auto of_peer = idle_.try_emplace(peer).first;
  std::list<Idle>& idle = of_peer->second;
  const Place place = idle.insert(idle.end(), {std::move(connection)});
  const auto drop = [this, of_peer, place] { Remove(of_peer, place); };
  place->timer = executor_.RunAt(executor_.Now() + idle_timeout_, [place, drop] {
    place->timer = 0;
    drop();
  });
  // An idle peer has nothing to send: readable means end of file, or a violation of the protocol.
  place->connection.stream->OnReadable(drop);
  place->connection.ticket.MarkIdle(drop);
  // The connection used last is the least likely to be closed by the peer, so the oldest goes.
  if (idle.size() > max_idle_per_peer_) Remove(of_peer, idle.begin());
}

ConnectionPool::Connection ConnectionPool::Remove(OfPeer peer, Place place) {
  if (place->timer != 0) executor_.Cancel(place->timer);
  Connection connection = std::move(place->connection);
  peer->second.erase(place);
  if (peer->second.empty()) idle_.erase(peer);
  // The callback refers to the removed entry.
  connection.stream->OnReadable(nullptr);
  return connection;
}

}  // namespace phalanx::net
