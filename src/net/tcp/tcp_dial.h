// TcpDial: one attempt to connect, from the addresses of a host to a TcpStream.
#ifndef PHALANX_NET_TCP_TCP_DIAL_H_
#define PHALANX_NET_TCP_TCP_DIAL_H_

#include <memory>
#include <string>
#include <vector>

#include "src/net/loop/event_loop.h"
#include "src/net/stream/byte_stream.h"
#include "src/net/tcp/socket_address.h"
#include "src/net/tcp/unique_fd.h"

namespace phalanx::net {

// On one loop. A timer of the loop owns the dial until it has called `done`, so that the dial is
// destroyed with the loop if that stops first. All other references are weak.
class TcpDial : public std::enable_shared_from_this<TcpDial> {
 public:
  // Calls `done` once, in a later turn, as Network::Dial.
  static std::weak_ptr<TcpDial> Start(EventLoop& loop, Address to, Instant deadline,
                                      Network::DialDone done);

  // Tries the addresses of the host, or ends with the error of the lookup.
  void Connect(absl::StatusOr<std::vector<SocketAddress>> addresses);

 private:
  TcpDial(EventLoop& loop, Address to, Instant deadline, Network::DialDone done);

  void TryNext();
  void Attempt(const SocketAddress& address);
  void FinishAttempt();
  void AttemptFailed(int error);
  void Finish(absl::StatusOr<std::unique_ptr<ByteStream>> result);

  EventLoop& loop_;
  const Address to_;
  const Instant deadline_;
  Network::DialDone done_;
  TimerId deadline_timer_ = 0;

  std::vector<SocketAddress> addresses_;
  size_t next_ = 0;
  absl::Status last_error_;
  // Belong to the current attempt.
  TimerId attempt_timer_ = 0;
  UniqueFd fd_;
  std::unique_ptr<FdWatcher> watcher_;
};

}  // namespace phalanx::net

#endif  // PHALANX_NET_TCP_TCP_DIAL_H_
