// TcpListener: accepts connections and hands each to the loop that shall own it.
#ifndef PHALANX_NET_TCP_TCP_LISTENER_H_
#define PHALANX_NET_TCP_TCP_LISTENER_H_

#include <memory>

#include "absl/status/statusor.h"
#include "src/net/byte_stream.h"
#include "src/net/event_loop.h"
#include "src/net/tcp/socket_address.h"
#include "src/net/tcp/unique_fd.h"

namespace phalanx::net {

// On one loop, like the Listener it is. See TcpNetwork::Listen.
class TcpListener final : public Listener {
 public:
  // Binds and listens. AlreadyExists when the port is in use, InvalidArgument when the address is
  // not this machine's, Unavailable when the system has no means left.
  static absl::StatusOr<std::unique_ptr<TcpListener>> Make(EventLoop& loop, const SocketAddress& on,
                                                           absl::AnyInvocable<Executor&()> pick,
                                                           Network::Accepted accepted);
  ~TcpListener() override;

  Address address() const override { return address_; }

 private:
  TcpListener(EventLoop& loop, UniqueFd fd, std::unique_ptr<FdWatcher> watcher, Address address,
              absl::AnyInvocable<Executor&()> pick, Network::Accepted accepted);

  void WaitForConnections();
  void AcceptAll();
  void HandOver(UniqueFd fd, const SocketAddress& peer);
  // Closes the next connection that waits, and pauses.
  void TurnAway(int error);

  EventLoop& loop_;
  const Address address_;
  UniqueFd fd_;
  std::unique_ptr<FdWatcher> watcher_;
  absl::AnyInvocable<Executor&()> pick_;
  // Shared with connections on their way to other loops.
  const std::shared_ptr<Network::Accepted> accepted_;
  // Given up for a moment when there is no other, to accept a connection and close it.
  UniqueFd spare_;
  TimerId pause_ = 0;
};

// The EventLoop that `executor` is. REQUIRES: it is one.
EventLoop& LoopOf(Executor& executor);

}  // namespace phalanx::net

#endif  // PHALANX_NET_TCP_TCP_LISTENER_H_
