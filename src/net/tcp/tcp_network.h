// TcpNetwork: Network over real sockets, IPv4 and IPv6, with numeric addresses or names.
//
// Owned by `main`; destroyed before the loops that were passed to it, and after its listeners.
// Every executor passed to it must be an EventLoop. Dial is called on its executor; Listen on its
// executor, or before that runs.
//
// A listener that runs out of descriptors stays open: it closes the connections that it cannot
// serve and retries after a pause. Dial looks up names on the threads of the resolver. Listen looks
// up a name at once and can block, since it runs only at start-up.
#ifndef PHALANX_NET_TCP_TCP_NETWORK_H_
#define PHALANX_NET_TCP_TCP_NETWORK_H_

#include <memory>

#include "src/net/stream/byte_stream.h"
#include "src/net/tcp/resolver.h"

namespace phalanx::net {

class TcpNetwork final : public Network {
 public:
  TcpNetwork() = default;

  // A dial in progress when the network is destroyed still completes, except that a name not yet
  // looked up ends at its deadline. The addresses of a name are tried in order, each for an equal
  // share of the remaining time.
  void Dial(Executor& executor, const Address& to, Instant deadline, DialDone done) override;

  // `accepted` is called on the executors that `pick` returns, possibly on several at the same
  // time. It can be called after the listener was destroyed, for a connection that was in transit
  // to another executor. Destroy the listener on `executor`, or while that does not run.
  absl::StatusOr<std::unique_ptr<Listener>> Listen(Executor& executor, const Address& on,
                                                   absl::AnyInvocable<Executor&()> pick,
                                                   Accepted accepted) override;

 private:
  Resolver resolver_;
};

}  // namespace phalanx::net

#endif  // PHALANX_NET_TCP_TCP_NETWORK_H_
