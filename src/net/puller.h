// Puller: the pulls of one I/O loop, each from its start to its end: a pooled connection or a new
// one, the handshake, the pull itself, and the connection back to the pool.
//
//   pull:  (pooled) ────────────────────────► PullReceiver ──► told ──► connection to the pool
//             ▲ none                             │ pooled one found dead before it said a word:
//             └► Dial ──► StreamHandshake ──►────┘ once more, with a new one
//
// So many pulls may begin at once that their peer could not accept a connection for each: beyond
// kDialsAtOnce they wait, and take whatever comes first, their turn to dial or a connection that
// another pull is done with. None waits longer than the connect timeout.
//
// Owned by the data plane; lives on its loop.
#ifndef PHALANX_NET_PULLER_H_
#define PHALANX_NET_PULLER_H_

#include <cstdint>
#include <map>
#include <memory>
#include <set>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "src/common/executor.h"
#include "src/net/byte_stream.h"
#include "src/net/connection_budget.h"
#include "src/net/connection_pool.h"
#include "src/net/data_plane_counters.h"
#include "src/net/handshake.h"
#include "src/net/pull.h"
#include "src/net/pull_receiver.h"
#include "src/net/stream_handshake.h"

namespace phalanx::net {

// Connections that one loop makes to one peer at a time.
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

  // `ended` is called on this loop once for every pull started, possibly from within Start and
  // Cancel; it must not call back. REQUIRES: all references outlive the puller.
  Puller(Network& network, Executor& executor, Options options, absl::Span<char> scratch,
         DataPlaneCounters& counters, ConnectionBudget& budget, Ended ended);
  // Ends all pulls without a word.
  ~Puller();
  Puller(const Puller&) = delete;
  Puller& operator=(const Puller&) = delete;

  // REQUIRES: `handle` was not used before.
  void Start(uint64_t handle, PullSpec spec);
  // Unknown and ended ones are ignored.
  void Cancel(uint64_t handle);

 private:
  class Pull;
  using Peer = ConnectionPool::Peer;
  // Of one peer: connections that are being made, and pulls that wait, the earliest first.
  struct Way {
    int dialing = 0;
    std::set<uint64_t> waiting;
  };

  // Whose turn it is to dial does so.
  void DialNext(const Peer& peer);
  // A pull is done with its connection: to one that waits, or to the pool.
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
  // Including those whose outcome was told and whose connection is being drained.
  std::map<uint64_t, std::unique_ptr<Pull>> pulls_;
  // Of peers to whom connections are being made.
  std::map<Peer, Way> ways_;
  // Tells a late Dial that we are gone.
  std::shared_ptr<Puller*> self_;
};

}  // namespace phalanx::net

#endif  // PHALANX_NET_PULLER_H_
