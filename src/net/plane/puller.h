// Puller: runs the pulls of one I/O loop: takes a pooled connection or dials, runs the handshake
// and the pull, and returns the connection to the pool.
//
//   pull:  (pooled) ────────────────────────► PullReceiver ──► outcome ──► connection to the pool
//             ▲ none                             │ pooled connection dead before its first byte:
//             └► Dial ──► StreamHandshake ──►────┘ retry once, with a new connection
//
// If many pulls of one peer begin at once, the peer could not accept a connection for each. At most
// kDialsAtOnce connections are dialed at a time, besides those of pulls that only connect. The
// other pulls wait until they can dial or another pull releases its connection, but no longer than
// the connect timeout.
//
// Owned by the data plane; lives on its loop.
#ifndef PHALANX_NET_PLANE_PULLER_H_
#define PHALANX_NET_PLANE_PULLER_H_

#include <cstdint>
#include <map>
#include <memory>
#include <set>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "src/common/time/executor.h"
#include "src/net/plane/connection_budget.h"
#include "src/net/plane/connection_pool.h"
#include "src/net/pull/data_plane_counters.h"
#include "src/net/pull/pull.h"
#include "src/net/pull/pull_receiver.h"
#include "src/net/stream/byte_stream.h"
#include "src/net/stream/handshake.h"
#include "src/net/stream/stream_handshake.h"

namespace phalanx::net {

// The number of connections that one loop dials to one peer at the same time.
inline constexpr int kDialsAtOnce = 16;

class Puller {
 public:
  struct Options {
    HandshakeConfig handshake;
    PullReceiver::Options receiver;
    absl::Duration connect_timeout;
    absl::Duration idle_timeout;
    size_t max_idle_per_peer = 64;
  };
  using Ended = absl::AnyInvocable<void(uint64_t handle, PullOutcome outcome)>;

  // `ended` is called on this loop once for every started pull, possibly from within Start and
  // Cancel. It must not call the puller. REQUIRES: all references outlive the puller.
  Puller(Network& network, Executor& executor, Options options, absl::Span<char> scratch,
         DataPlaneCounters& counters, ConnectionBudget& budget, Ended ended);
  // Ends all pulls without calling `ended`.
  ~Puller();
  Puller(const Puller&) = delete;
  Puller& operator=(const Puller&) = delete;

  // REQUIRES: `handle` was not used before.
  void Start(uint64_t handle, PullSpec spec);
  // Ignores unknown and ended pulls.
  void Cancel(uint64_t handle);

 private:
  class Pull;
  using Peer = ConnectionPool::Peer;
  // For one peer: the number of connections being dialed, and the waiting pulls, the oldest first.
  struct DialState {
    int dialing = 0;
    std::set<uint64_t> waiting;
  };

  // Lets waiting pulls dial, as far as kDialsAtOnce allows.
  void DialNext(const Peer& peer);
  // Passes the connection of an ended pull to a waiting pull, or to the pool.
  void Release(const Peer& peer, ConnectionPool::Connection connection);
  void Remove(uint64_t handle);

  // Constant after construction.
  Network& network_;
  Executor& executor_;
  const Options options_;
  const absl::Span<char> scratch_;
  DataPlaneCounters& counters_;
  ConnectionBudget& budget_;

  Ended ended_;
  ConnectionPool pool_;
  // Includes pulls whose outcome was reported and whose connection is being drained.
  std::map<uint64_t, std::unique_ptr<Pull>> pulls_;
  // Only peers to which connections are being dialed.
  std::map<Peer, DialState> dials_;
  // Expires with the puller, so that a late Dial does not use it.
  std::shared_ptr<Puller*> self_;
};

}  // namespace phalanx::net

#endif  // PHALANX_NET_PLANE_PULLER_H_
