// TcpNetwork: Network over real sockets, IPv4 and IPv6, addresses as numbers or names.
//
// Owned by `main`; destroyed before the loops that were passed to it, and after its listeners.
// Every executor passed to it must be an EventLoop. Dial is called on the executor it is given;
// Listen on the executor it is given, or before that runs.
//
// A listener that runs out of descriptors stays: it turns the connections away that it cannot serve
// and tries again after a moment. Names in Dial are looked up on threads of the resolver; a name in
// Listen is looked up on the spot, which may block (it is a matter of starting up).
#ifndef PHALANX_NET_TCP_TCP_NETWORK_H_
#define PHALANX_NET_TCP_TCP_NETWORK_H_

#include <memory>

#include "src/net/byte_stream.h"
#include "src/net/tcp/resolver.h"

namespace phalanx::net {

class TcpNetwork final : public Network {
 public:
  TcpNetwork() = default;

  // A dial that is in progress when the network goes ends as it would have, except that a name not
  // yet looked up ends at its deadline. A name with several addresses is tried in their order, each
  // for an equal share of the time left.
  void Dial(Executor& executor, const Address& to, Instant deadline, DialDone done) override;

  // `accepted` is called on whatever executors `pick` names, possibly on several at once. After the
  // listener was destroyed it may still be called for a connection that was on its way to another
  // executor. Destroy the listener on `executor`, or when that does not run.
  absl::StatusOr<std::unique_ptr<Listener>> Listen(Executor& executor, const Address& on,
                                                   absl::AnyInvocable<Executor&()> pick,
                                                   Accepted accepted) override;

 private:
  Resolver resolver_;
};

}  // namespace phalanx::net

#endif  // PHALANX_NET_TCP_TCP_NETWORK_H_
