// TcpListener: accepts connections and passes each to the loop that owns it.
#ifndef PHALANX_NET_TCP_TCP_LISTENER_H_
#define PHALANX_NET_TCP_TCP_LISTENER_H_

#include <memory>

#include "absl/status/statusor.h"
#include "src/net/loop/event_loop.h"
#include "src/net/stream/byte_stream.h"
#include "src/net/tcp/socket_address.h"
#include "src/net/tcp/unique_fd.h"

namespace phalanx::net {

// Belongs to one loop. See TcpNetwork::Listen.
class TcpListener final : public Listener {
 public:
  // Binds and listens. Returns AlreadyExists if the port is in use, InvalidArgument if the address
  // does not belong to this machine, Unavailable if the system has no resources left.
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
  // Closes the next waiting connection, and pauses.
  void RejectConnection(int error);

  EventLoop& loop_;
  const Address address_;
  UniqueFd fd_;
  std::unique_ptr<FdWatcher> watcher_;
  absl::AnyInvocable<Executor&()> pick_;
  // Shared with connections in transit to other loops.
  const std::shared_ptr<Network::Accepted> accepted_;
  // Closed for a moment when the process has no other descriptor left, to accept a connection and
  // close it.
  UniqueFd spare_;
  TimerId pause_ = 0;
};

}  // namespace phalanx::net

#endif  // PHALANX_NET_TCP_TCP_LISTENER_H_
