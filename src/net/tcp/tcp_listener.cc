#include "src/net/tcp/tcp_listener.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "src/common/check.h"
#include "src/common/io/log.h"
#include "src/common/status_macros.h"
#include "src/net/tcp/tcp_stream.h"

namespace phalanx::net {
namespace {

constexpr int kBacklog = 1024;
// Limits the connections accepted in one turn, so that other callbacks run, too.
constexpr int kMaxAcceptsPerTurn = 64;
constexpr absl::Duration kPause = absl::Milliseconds(50);

UniqueFd OpenSpare() { return UniqueFd(open("/dev/null", O_RDONLY | O_CLOEXEC)); }

absl::Status BindError(const SocketAddress& on, int error) {
  const std::string text = absl::StrCat("listening on ", on.ToString(), ": ", std::strerror(error));
  switch (error) {
    case EADDRINUSE:
      return absl::AlreadyExistsError(text);
    case EADDRNOTAVAIL:
    case EAFNOSUPPORT:
    case EACCES:
    case EINVAL:
    case ENODEV:
      return absl::InvalidArgumentError(text);
    default:
      return absl::UnavailableError(text);
  }
}

absl::StatusOr<UniqueFd> Bind(const SocketAddress& on) {
  UniqueFd fd(socket(on.family(), SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!fd.valid()) return BindError(on, errno);
  // Lingering connections of an earlier process do not block the port.
  const int yes = 1, no = 0;
  setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
  // "[::]" includes all IPv4 addresses.
  if (on.family() == AF_INET6) setsockopt(fd.get(), IPPROTO_IPV6, IPV6_V6ONLY, &no, sizeof(no));
  if (bind(fd.get(), on.get(), on.size) != 0 || listen(fd.get(), kBacklog) != 0) {
    return BindError(on, errno);
  }
  return fd;
}

// Returns true if only this connection failed before it was accepted; the next one can succeed.
// See accept(2): Linux passes pending network errors of the new socket as errors of accept.
bool IsOfOneConnection(int error) {
  switch (error) {
    case EINTR:
    case ECONNABORTED:
    case EPROTO:
    case ENETDOWN:
    case ENOPROTOOPT:
    case EHOSTDOWN:
    case ENONET:
    case EHOSTUNREACH:
    case EOPNOTSUPP:
    case ENETUNREACH:
    case EPERM:
      return true;
    default:
      return false;
  }
}

}  // namespace

absl::StatusOr<std::unique_ptr<TcpListener>> TcpListener::Make(EventLoop& loop,
                                                               const SocketAddress& on,
                                                               absl::AnyInvocable<Executor&()> pick,
                                                               Network::Accepted accepted) {
  PHALANX_ASSIGN_OR_RETURN(UniqueFd fd, Bind(on));
  SocketAddress bound;
  // Port 0 has become an actual port by now.
  if (getsockname(fd.get(), bound.get(), &bound.size) != 0) return BindError(on, errno);
  PHALANX_ASSIGN_OR_RETURN(std::unique_ptr<FdWatcher> watcher, loop.Watch(fd.get()));
  std::unique_ptr<TcpListener> listener(new TcpListener(loop, std::move(fd), std::move(watcher),
                                                        bound.ToString(), std::move(pick),
                                                        std::move(accepted)));
  listener->WaitForConnections();
  return listener;
}

TcpListener::TcpListener(EventLoop& loop, UniqueFd fd, std::unique_ptr<FdWatcher> watcher,
                         Address address, absl::AnyInvocable<Executor&()> pick,
                         Network::Accepted accepted)
    : loop_(loop),
      address_(std::move(address)),
      fd_(std::move(fd)),
      watcher_(std::move(watcher)),
      pick_(std::move(pick)),
      accepted_(std::make_shared<Network::Accepted>(std::move(accepted))),
      spare_(OpenSpare()) {}

TcpListener::~TcpListener() {
  // The timer refers to this object.
  loop_.Cancel(pause_);
  watcher_.reset();
}

void TcpListener::WaitForConnections() {
  watcher_->OnReadable([this] { AcceptAll(); });
}

void TcpListener::AcceptAll() {
  for (int i = 0; i < kMaxAcceptsPerTurn; ++i) {
    SocketAddress peer;
    UniqueFd fd(accept4(fd_.get(), peer.get(), &peer.size, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (fd.valid()) {
      HandOver(std::move(fd), peer);
    } else if (errno == EAGAIN) {
      break;
    } else if (!IsOfOneConnection(errno)) {
      return RejectConnection(errno);
    }
  }
  WaitForConnections();
}

void TcpListener::HandOver(UniqueFd fd, const SocketAddress& peer) {
  // The stream is constructed on its own loop, to which its watcher belongs.
  Executor& owner = pick_();
  owner.Post([&owner, fd = std::move(fd), peer = peer.ToString(), accepted = accepted_]() mutable {
    auto stream = TcpStream::Make(LoopOf(owner), std::move(fd), peer);
    if (stream.ok()) return (*accepted)(owner, *std::move(stream));
    PHALANX_LOG_EVERY(WARNING, absl::Seconds(1)) << "dropped a connection" << LogField("peer", peer)
                                                 << LogField("error", stream.status().message());
  });
}

void TcpListener::RejectConnection(int error) {
  PHALANX_LOG_EVERY(WARNING, absl::Seconds(1))
      << "cannot accept connections" << LogField("address", address_)
      << LogField("error", std::strerror(error));
  // In the queue, the connection would look accepted to a peer, which would wait for an answer. So
  // it is accepted with the spare descriptor and closed.
  spare_.Close();
  UniqueFd(accept4(fd_.get(), nullptr, nullptr, SOCK_CLOEXEC)).Close();
  spare_ = OpenSpare();
  // Without a pause the loop would spin: the descriptor stays readable while other connections
  // wait.
  pause_ = loop_.RunAt(loop_.Now() + kPause, [this] { WaitForConnections(); });
}

}  // namespace phalanx::net
