#include "src/net/tcp/tcp_stream.h"

#include <linux/pkt_sched.h>
#include <linux/sockios.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "src/common/check.h"

namespace phalanx::net {
namespace {

constexpr absl::Duration kFirstLingerCheck = absl::Milliseconds(1);
constexpr absl::Duration kSlowestLingerCheck = absl::Milliseconds(100);

// Detects a dead machine after 15 s of silence and three probes. Leases detect it much earlier.
constexpr int kKeepAliveIdleSeconds = 15;
constexpr int kKeepAliveIntervalSeconds = 5;
constexpr int kKeepAliveProbes = 3;

void SetOption(int fd, int level, int name, int value) {
  // The result is ignored: the stream works without any of these options.
  setsockopt(fd, level, name, &value, sizeof(value));
}

msghdr Message(absl::Span<const iovec> buffers) {
  msghdr message = {};
  message.msg_iov = const_cast<iovec*>(buffers.data());
  message.msg_iovlen = std::min<size_t>(buffers.size(), IOV_MAX);
  return message;
}

bool Empty(absl::Span<const iovec> buffers) {
  return std::all_of(buffers.begin(), buffers.end(),
                     [](const iovec& buffer) { return buffer.iov_len == 0; });
}

// Returns the number of bytes, including the end of file, that the peer has not confirmed.
int Unconfirmed(int fd) {
  int bytes = 0;
  return ioctl(fd, SIOCOUTQ, &bytes) == 0 ? bytes : 0;
}

// Closing a socket with unread input, or before later input arrives, makes the kernel reset the
// connection and discard bytes that the peer has not received. So the socket stays open, after its
// end of file was sent, until the peer has confirmed everything. A timer of the loop owns it
// meanwhile.
void CloseWhenConfirmed(EventLoop& loop, UniqueFd fd, Instant deadline, absl::Duration interval) {
  if (Unconfirmed(fd.get()) == 0 || loop.Now() >= deadline) return;
  loop.RunAt(loop.Now() + interval, [&loop, fd = std::move(fd), deadline, interval]() mutable {
    CloseWhenConfirmed(loop, std::move(fd), deadline, std::min(2 * interval, kSlowestLingerCheck));
  });
}

class DetachedTcpStream final : public DetachedStream {
 public:
  DetachedTcpStream(UniqueFd fd, std::string peer) : fd_(std::move(fd)), peer_(std::move(peer)) {}

  absl::StatusOr<std::unique_ptr<ByteStream>> Attach(Executor& executor) override {
    auto stream = TcpStream::Make(LoopOf(executor), std::move(fd_), std::move(peer_));
    if (!stream.ok()) return stream.status();
    return *std::move(stream);
  }

 private:
  UniqueFd fd_;
  std::string peer_;
};

}  // namespace

EventLoop& LoopOf(Executor& executor) {
  auto* loop = dynamic_cast<EventLoop*>(&executor);
  PHALANX_CHECK(loop != nullptr, "sockets need an EventLoop");
  return *loop;
}

absl::StatusOr<std::unique_ptr<TcpStream>> TcpStream::Make(EventLoop& loop, UniqueFd fd,
                                                           std::string peer) {
  // Nagle's algorithm would delay a small frame until the peer has confirmed the one before.
  SetOption(fd.get(), IPPROTO_TCP, TCP_NODELAY, 1);
  SetOption(fd.get(), SOL_SOCKET, SO_KEEPALIVE, 1);
  SetOption(fd.get(), IPPROTO_TCP, TCP_KEEPIDLE, kKeepAliveIdleSeconds);
  SetOption(fd.get(), IPPROTO_TCP, TCP_KEEPINTVL, kKeepAliveIntervalSeconds);
  SetOption(fd.get(), IPPROTO_TCP, TCP_KEEPCNT, kKeepAliveProbes);
  auto watcher = loop.Watch(fd.get());
  if (!watcher.ok()) return watcher.status();
  return std::unique_ptr<TcpStream>(
      new TcpStream(loop, std::move(fd), *std::move(watcher), std::move(peer)));
}

TcpStream::TcpStream(EventLoop& loop, UniqueFd fd, std::unique_ptr<FdWatcher> watcher,
                     std::string peer)
    : loop_(loop), peer_(std::move(peer)), fd_(std::move(fd)), watcher_(std::move(watcher)) {}

TcpStream::~TcpStream() { Close(); }

absl::StatusOr<size_t> TcpStream::Read(absl::Span<const iovec> into) {
  if (!fd_.valid()) return Broken(EBADF);
  // The kernel returns 0 for an empty buffer as for end of file.
  if (Empty(into)) return 0;
  msghdr message = Message(into);
  while (true) {
    const ssize_t got = recvmsg(fd_.get(), &message, MSG_DONTWAIT);
    if (got > 0) return static_cast<size_t>(got);
    if (got == 0) return absl::OutOfRangeError(absl::StrCat("end of file from ", peer_));
    if (errno == EAGAIN) return 0;
    if (errno != EINTR) return Broken(errno);
  }
}

absl::StatusOr<size_t> TcpStream::Write(absl::Span<const iovec> from) {
  if (!fd_.valid()) return Broken(EBADF);
  if (Empty(from)) return 0;
  const msghdr message = Message(from);
  while (true) {
    const ssize_t wrote = sendmsg(fd_.get(), &message, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (wrote >= 0) return static_cast<size_t>(wrote);
    if (errno == EAGAIN) return 0;
    if (errno != EINTR) return Broken(errno);
  }
}

void TcpStream::OnReadable(Task ready) {
  if (watcher_ != nullptr) watcher_->OnReadable(std::move(ready));
}

void TcpStream::OnWritable(Task ready) {
  if (watcher_ != nullptr) watcher_->OnWritable(std::move(ready));
}

void TcpStream::SetUnsentLimit(size_t bytes) {
  if (!fd_.valid()) return;
  SetOption(fd_.get(), IPPROTO_TCP, TCP_NOTSENT_LOWAT,
            static_cast<int>(std::clamp<size_t>(bytes, 1, INT_MAX)));
}

void TcpStream::SetUrgent() {
  if (fd_.valid()) SetOption(fd_.get(), SOL_SOCKET, SO_PRIORITY, TC_PRIO_INTERACTIVE);
}

absl::Duration TcpStream::RoundTrip() const {
  tcp_info info = {};
  socklen_t size = sizeof(info);
  if (!fd_.valid() || getsockopt(fd_.get(), IPPROTO_TCP, TCP_INFO, &info, &size) != 0) {
    return absl::ZeroDuration();
  }
  return absl::Microseconds(info.tcpi_rtt);
}

void TcpStream::Close() {
  if (!fd_.valid()) return;
  EventLoop& loop = loop_;
  UniqueFd fd = std::move(fd_);
  std::unique_ptr<FdWatcher> watcher = std::move(watcher_);
  // The watcher is destroyed before the descriptor, whose number can be reused once it is closed.
  // Its callbacks can own the owner of this stream, so nothing of `this` is touched after it.
  watcher.reset();
  // Fails if the connection is broken: nothing can be delivered then.
  if (shutdown(fd.get(), SHUT_WR) != 0) return;
  CloseWhenConfirmed(loop, std::move(fd), loop.Now() + kLinger, kFirstLingerCheck);
}

UniqueFd TcpStream::Release() {
  watcher_.reset();
  return std::move(fd_);
}

std::unique_ptr<DetachedStream> TcpStream::Detach() {
  return std::make_unique<DetachedTcpStream>(Release(), peer_);
}

absl::Status TcpStream::Broken(int error) const {
  return absl::UnavailableError(
      absl::StrCat("connection with ", peer_, ": ",
                   error == EBADF ? "closed on this side" : std::strerror(error)));
}

}  // namespace phalanx::net
