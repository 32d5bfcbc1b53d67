// ConnectionPool: the authenticated connections of one loop that no pull uses now.
//
// A connection that becomes readable while it idles is dropped: its peer has closed it, or speaks
// out of turn. One that idles for too long is dropped too, a little before the peer would do it,
// and one whose place the budget has given to another.
//
// Owned by the loop's Puller; one loop. Destroying the pool closes what is in it.
#ifndef PHALANX_NET_CONNECTION_POOL_H_
#define PHALANX_NET_CONNECTION_POOL_H_

#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <utility>

#include "absl/time/time.h"
#include "src/common/executor.h"
#include "src/common/ids.h"
#include "src/net/byte_stream.h"
#include "src/net/connection_budget.h"

namespace phalanx::net {

class ConnectionPool {
 public:
  // One life of a peer, at one address.
  using Peer = std::pair<NodeKey, Address>;
  struct Connection {
    std::unique_ptr<ByteStream> stream;
    // Pulls it has carried so far.
    uint32_t pulls = 0;
    ConnectionTicket ticket;
  };

  ConnectionPool(Executor& executor, absl::Duration idle_timeout, size_t max_idle_per_peer);
  ~ConnectionPool();
  ConnectionPool(const ConnectionPool&) = delete;
  ConnectionPool& operator=(const ConnectionPool&) = delete;

  // The connection to `peer` that was used last; empty if there is none.
  std::optional<Connection> Take(const Peer& peer);
  // Keeps it; drops the one that has idled longest if the peer has more than its share.
  void Put(const Peer& peer, Connection connection);

 private:
  struct Idle {
    Connection connection;
    TimerId timer = 0;
  };
  // The one that has idled longest first; never empty.
  using OfPeer = std::map<Peer, std::list<Idle>>::iterator;
  using Place = std::list<Idle>::iterator;

  Connection Remove(OfPeer peer, Place place);

  Executor& executor_;
  const absl::Duration idle_timeout_;
  const size_t max_idle_per_peer_;
  std::map<Peer, std::list<Idle>> idle_;
};

}  // namespace phalanx::net

#endif  // PHALANX_NET_CONNECTION_POOL_H_
