// Puller: the pulls of one I/O loop, each from its start to its end: a pooled connection or a new
// one, the handshake, the pull itself, and the connection back to the pool.
//
//   pull:  (pooled) ────────────────────────► PullReceiver ──► told ──► connection to the pool
//             ▲ none                             │ pooled one found dead before it said a word:
//             └► Dial ──► StreamHandshake ──►────┘ once more, with a new one
//
// Owned by the data plane; lives on its loop.
#ifndef PHALANX_NET_PULLER_H_
#define PHALANX_NET_PULLER_H_

#include <cstdint>
#include <map>
#include <memory>

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

class Puller {
 public:
  struct Options {
    HandshakeConfig handshake;
    PullReceiver::Options receiver;
    absl::Duration connect_timeout;
    absl::Duration idle_timeout;
    size_t max_idle_per_peer = 4;
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
  // Tells a late Dial that we are gone.
  std::shared_ptr<Puller*> self_;
};

}  // namespace phalanx::net

#endif  // PHALANX_NET_PULLER_H_
