#include "src/net/tcp/tcp_dial.h"

#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "src/net/tcp/tcp_stream.h"

namespace phalanx::net {
namespace {

// A connection to a free local port can connect to itself: the system can choose the same port for
// this end.
bool ConnectedToItself(int fd) {
  SocketAddress here, there;
  return getsockname(fd, here.get(), &here.size) == 0 &&
         getpeername(fd, there.get(), &there.size) == 0 && here == there;
}

}  // namespace

std::weak_ptr<TcpDial> TcpDial::Start(EventLoop& loop, Address to, Instant deadline,
                                      Network::DialDone done) {
  const std::shared_ptr<TcpDial> dial(new TcpDial(loop, std::move(to), deadline, std::move(done)));
  dial->deadline_timer_ = loop.RunAt(deadline, [dial] {
    dial->Finish(absl::DeadlineExceededError(absl::StrCat("connecting to ", dial->to_)));
  });
  return dial;
}

TcpDial::TcpDial(EventLoop& loop, Address to, Instant deadline, Network::DialDone done)
    : loop_(loop), to_(std::move(to)), deadline_(deadline), done_(std::move(done)) {}

void TcpDial::Connect(absl::StatusOr<std::vector<SocketAddress>> addresses) {
  if (!addresses.ok()) return Finish(addresses.status());
  addresses_ = *std::move(addresses);
  TryNext();
}

void TcpDial::TryNext() {
  // Releases the attempt before this one. A watcher must be destroyed before its descriptor is
  // closed.
  watcher_.reset();
  fd_ = UniqueFd();
  loop_.Cancel(std::exchange(attempt_timer_, 0));
  if (next_ == addresses_.size()) return Finish(last_error_);

  const size_t left = addresses_.size() - next_;
  const SocketAddress& address = addresses_[next_++];
  if (left > 1 && !deadline_.infinite()) {
    // An equal share of the remaining time, so that one dead address leaves time for the others.
    const Instant until = loop_.Now() + (deadline_ - loop_.Now()) / static_cast<int64_t>(left);
    attempt_timer_ = loop_.RunAt(until, [weak = weak_from_this()] {
      if (const auto dial = weak.lock()) dial->AttemptFailed(ETIMEDOUT);
    });
  }
  Attempt(address);
}

void TcpDial::Attempt(const SocketAddress& address) {
  fd_ = UniqueFd(socket(address.family(), SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!fd_.valid()) return AttemptFailed(errno);
  if (connect(fd_.get(), address.get(), address.size) != 0 && errno != EINPROGRESS) {
    return AttemptFailed(errno);
  }
  auto watcher = loop_.Watch(fd_.get());
  if (!watcher.ok()) return Finish(watcher.status());
  watcher_ = *std::move(watcher);
  // A non-blocking connect reports its result by writability. Weak, since only the deadline timer
  // owns the dial.
  watcher_->OnWritable([weak = weak_from_this()] {
    if (const auto dial = weak.lock()) dial->FinishAttempt();
  });
}

void TcpDial::FinishAttempt() {
  int error = 0;
  socklen_t size = sizeof(error);
  if (getsockopt(fd_.get(), SOL_SOCKET, SO_ERROR, &error, &size) != 0) error = errno;
  if (error == 0 && ConnectedToItself(fd_.get())) error = ECONNREFUSED;
  if (error != 0) return AttemptFailed(error);
  watcher_.reset();
  Finish(TcpStream::Make(loop_, std::move(fd_), to_));
}

void TcpDial::AttemptFailed(int error) {
  last_error_ =
      absl::UnavailableError(absl::StrCat("connecting to ", to_, ": ", std::strerror(error)));
  TryNext();
}

void TcpDial::Finish(absl::StatusOr<std::unique_ptr<ByteStream>> result) {
  // The timer, which Cancel destroys below, owns this object.
  const std::shared_ptr<TcpDial> keep = shared_from_this();
  watcher_.reset();
  fd_ = UniqueFd();
  loop_.Cancel(attempt_timer_);
  loop_.Cancel(deadline_timer_);
  Network::DialDone done = std::exchange(done_, nullptr);
  if (done != nullptr) done(std::move(result));
}

}  // namespace phalanx::net
