#include "src/net/connection_pool.h"

#include <algorithm>

namespace phalanx::net {

ConnectionPool::ConnectionPool(Executor& executor, absl::Duration idle_timeout,
                               size_t max_idle_per_peer)
    : executor_(executor), idle_timeout_(idle_timeout), max_idle_per_peer_(max_idle_per_peer) {}

ConnectionPool::~ConnectionPool() {
  while (DropOldest()) {
  }
}

std::optional<ConnectionPool::Connection> ConnectionPool::Take(const Peer& peer) {
  const auto found = std::find_if(idle_.rbegin(), idle_.rend(),
                                  [&peer](const Idle& idle) { return idle.peer == peer; });
  if (found == idle_.rend()) return std::nullopt;
  return Remove(std::prev(found.base()));
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
}

bool ConnectionPool::DropOldest() {
  if (idle_.empty()) return false;
  Remove(idle_.begin());
  return true;
}

ConnectionPool::Connection ConnectionPool::Remove(Place place) {
  if (place->timer != 0) executor_.Cancel(place->timer);
  Connection connection = std::move(place->connection);
  idle_.erase(place);
  connection.stream->OnReadable(nullptr);
  return connection;
}

}  // namespace phalanx::net
