#include "src/net/connection_pool.h"

#include <algorithm>

namespace phalanx::net {

ConnectionPool::ConnectionPool(Executor& executor, absl::Duration idle_timeout,
                               size_t max_idle_per_peer)
    : executor_(executor), idle_timeout_(idle_timeout), max_idle_per_peer_(max_idle_per_peer) {}

ConnectionPool::~ConnectionPool() {
  while (!idle_.empty()) Remove(idle_.begin());
}

std::optional<ConnectionPool::Connection> ConnectionPool::Take(const Peer& peer) {
  const auto same = [&peer](const Idle& idle) { return idle.peer == peer; };
  while (true) {
    const auto found = std::find_if(idle_.rbegin(), idle_.rend(), same);
    if (found == idle_.rend()) return std::nullopt;
    Connection connection = Remove(std::prev(found.base()));
    if (connection.ticket.Claim()) return connection;
  }
}

void ConnectionPool::Put(const Peer& peer, Connection connection) {
  const auto same = [&peer](const Idle& idle) { return idle.peer == peer; };
  const auto count = static_cast<size_t>(std::count_if(idle_.begin(), idle_.end(), same));
  if (max_idle_per_peer_ == 0) return;
  if (count >= max_idle_per_peer_) Remove(std::find_if(idle_.begin(), idle_.end(), same));
  const Place place = idle_.insert(idle_.end(), {peer, std::move(connection)});
  place->timer = executor_.RunAt(executor_.Now() + idle_timeout_, [this, place] {
    place->timer = 0;
    Remove(place);
  });
  place->connection.stream->OnReadable([this, place] { Remove(place); });
  place->connection.ticket.Rest([this, place] { Remove(place); });
}

ConnectionPool::Connection ConnectionPool::Remove(Place place) {
  if (place->timer != 0) executor_.Cancel(place->timer);
  Connection connection = std::move(place->connection);
  idle_.erase(place);
  connection.stream->OnReadable(nullptr);
  return connection;
}

}  // namespace phalanx::net
