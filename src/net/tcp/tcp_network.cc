#include "src/net/tcp/tcp_network.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "src/common/status_macros.h"
#include "src/net/stream/address.h"
#include "src/net/tcp/tcp_dial.h"
#include "src/net/tcp/tcp_listener.h"
#include "src/net/tcp/tcp_stream.h"

namespace phalanx::net {

void TcpNetwork::Dial(Executor& executor, const Address& to, Instant deadline, DialDone done) {
  EventLoop& loop = LoopOf(executor);
  std::weak_ptr<TcpDial> dial = TcpDial::Start(loop, to, deadline, std::move(done));
  absl::StatusOr<HostPort> host_port = ParseHostPort(to);
  // A dial past its deadline ends by its timer, after which the weak reference is empty.
  const auto connect = [dial](absl::StatusOr<std::vector<SocketAddress>> addresses) {
    if (const auto still = dial.lock()) still->Connect(std::move(addresses));
  };
  if (!host_port.ok()) {
    // Posted, since `done` runs in a later turn.
    loop.Post([connect, error = host_port.status()] { connect(error); });
    return;
  }
  // A numeric address needs no thread of the resolver.
  std::vector<SocketAddress> numeric = NumericAddress(*host_port);
  if (!numeric.empty()) {
    loop.Post([connect, numeric = std::move(numeric)] { connect(numeric); });
  } else {
    resolver_.LookUp(*std::move(host_port), loop, connect);
  }
}

absl::StatusOr<std::unique_ptr<Listener>> TcpNetwork::Listen(Executor& executor, const Address& on,
                                                             absl::AnyInvocable<Executor&()> pick,
                                                             Accepted accepted) {
  PHALANX_ASSIGN_OR_RETURN(const HostPort host_port, ParseHostPort(on));
  absl::StatusOr<std::vector<SocketAddress>> addresses = LookUpAddress(host_port);
  // A name that cannot be resolved is not an address of this machine.
  if (!addresses.ok()) {
    return absl::InvalidArgumentError(absl::StrCat("listening: ", addresses.status().message()));
  }
  PHALANX_ASSIGN_OR_RETURN(std::unique_ptr<TcpListener> listener,
                           TcpListener::Make(LoopOf(executor), addresses->front(), std::move(pick),
                                             std::move(accepted)));
  return listener;
}

}  // namespace phalanx::net
