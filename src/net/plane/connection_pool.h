// ConnectionPool: the authenticated idle connections of one loop.
//
// The pool drops a connection that becomes readable while it is idle: its peer has closed it or
// violates the protocol. It also drops a connection that is idle for too long (a little before the
// peer would close it), or whose place the budget has given to another connection.
//
// Owned by the loop's Puller; one loop. Destroying the pool closes its connections.
#ifndef PHALANX_NET_PLANE_CONNECTION_POOL_H_
#define PHALANX_NET_PLANE_CONNECTION_POOL_H_

#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <utility>

#include "absl/time/time.h"
#include "src/common/ids/ids.h"
#include "src/common/time/executor.h"
#include "src/net/plane/connection_budget.h"
#include "src/net/stream/byte_stream.h"

namespace phalanx::net {

class ConnectionPool {
 public:
  // One incarnation of a peer, at one address.
  using Peer = std::pair<NodeKey, Address>;
  struct Connection {
    std::unique_ptr<ByteStream> stream;
    // Number of pulls that it has carried.
    uint32_t pulls = 0;
    ConnectionTicket ticket;
  };

  ConnectionPool(Executor& executor, absl::Duration idle_timeout, size_t max_idle_per_peer);
  ~ConnectionPool();
  ConnectionPool(const ConnectionPool&) = delete;
  ConnectionPool& operator=(const ConnectionPool&) = delete;

  // Takes the most recently used connection to `peer`. Returns nullopt if there is none.
  std::optional<Connection> Take(const Peer& peer);
  // Adds the connection. If the peer then has more than its share, drops its longest idle one.
  void Put(const Peer& peer, Connection connection);

 private:
  struct Idle {
    Connection connection;
    TimerId timer = 0;
  };
  // In the order of idle time, the longest first; never empty.
  using OfPeer = std::map<Peer, std::list<Idle>>::iterator;
  using Place = std::list<Idle>::iterator;

  Connection Remove(OfPeer peer, Place place);

  Executor& executor_;
  const absl::Duration idle_timeout_;
  const size_t max_idle_per_peer_;
  std::map<Peer, std::list<Idle>> idle_;
};

}  // namespace phalanx::net

#endif  // PHALANX_NET_PLANE_CONNECTION_POOL_H_
