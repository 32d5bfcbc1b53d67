#include "src/local/local_service.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "src/common/io/log.h"
#include "src/common/io/private_folder.h"
#include "src/common/status_macros.h"

// The headers of older C libraries do not have it.
#ifndef SO_PEERPIDFD
#define SO_PEERPIDFD 77
#endif

namespace phalanx::object_store {
namespace {

constexpr int kBacklog = 1024;
// Clients accepted in a turn, so that a storm of clients does not delay those that are served.
constexpr int kAcceptsPerTurn = 64;
// Limit of processes whose end is awaited. Nothing is lost beyond it: the memory that such a
// process saw is checked again when memory is short.
constexpr size_t kMaxAwaitedExits = 1024;
// The pause if the process has no descriptor left, not even for a refusal.
constexpr absl::Duration kRetryAfter = absl::Milliseconds(100);

absl::Status Failed(absl::string_view what, absl::string_view path, int error) {
  return absl::UnavailableError(
      absl::StrCat("cannot ", what, " ", path, ": ", std::strerror(error)));
}

absl::StatusOr<sockaddr_un> AddressOf(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.empty() || path.size() >= sizeof(address.sun_path)) {
    return absl::InvalidArgumentError(
        absl::StrCat("a socket's path has 1 to ", sizeof(address.sun_path) - 1, " bytes: ", path));
  }
  path.copy(address.sun_path, path.size());
  return address;
}

// A private folder, so that no other user can replace the socket.
absl::Status PrepareFolder(const std::string& path) {
  const size_t slash = path.rfind('/');
  if (slash == std::string::npos) return MakePrivateFolder(".");
  return MakePrivateFolder(slash == 0 ? "/" : path.substr(0, slash));
}

// Whether a process accepts connections at the address.
bool HasListener(const sockaddr_un& address) {
  const int probe = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (probe < 0) return true;
  const int failed = connect(probe, reinterpret_cast<const sockaddr*>(&address), sizeof(address));
  const int error = errno;
  close(probe);
  // Any other error, such as EAGAIN for a full backlog, means that there is a listener.
  return failed == 0 || (error != ECONNREFUSED && error != ENOENT);
}

// Removes the socket of a node that has ended. Fails with AlreadyExists if the node still listens,
// or if the file is not a socket.
absl::Status RemoveStale(const std::string& path, const sockaddr_un& address) {
  struct stat found {};
  if (lstat(path.c_str(), &found) != 0) return absl::OkStatus();
  if (!S_ISSOCK(found.st_mode)) {
    return absl::AlreadyExistsError(absl::StrCat(path, " exists and is not a socket"));
  }
  if (HasListener(address)) {
    return absl::AlreadyExistsError(absl::StrCat(path, " is in use by another process"));
  }
  unlink(path.c_str());
  return absl::OkStatus();
}

// Returns a descriptor that becomes readable when the process that connected has ended, or -1, with
// ESRCH if it has ended already.
int OpenPeerProcess(int socket) {
  int handle = -1;
  socklen_t length = sizeof(handle);
  if (getsockopt(socket, SOL_SOCKET, SO_PEERPIDFD, &handle, &length) == 0) return handle;
  if (errno != ENOPROTOOPT) return -1;
  // Older kernels. The number can belong to another process by now. Then the check happens at that
  // process's end, which is only later.
  ucred peer{};
  length = sizeof(peer);
  if (getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &length) != 0) return -1;
  return static_cast<int>(syscall(SYS_pidfd_open, peer.pid, 0));
}

// Sends the reason in a hello, the only message that every version of a client can read.
void Refuse(int socket, const LocalGreeting& greeting, const absl::Status& why) {
  std::string hello;
  local::Encode(local::NodeHello{local::kMagic, local::kVersion, why.code(), why.message(),
                                 greeting.node_name, greeting.directory},
                hello);
  send(socket, hello.data(), hello.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
  close(socket);
}

}  // namespace

struct LocalService::Exit {
  explicit Exit(int handle) : handle(handle) {}
  ~Exit() {
    watcher.reset();
    close(handle);
  }
  const int handle;
  std::unique_ptr<net::FdWatcher> watcher;
};

absl::StatusOr<std::unique_ptr<LocalService>> LocalService::Start(net::EventLoop& loop,
                                                                  const LocalParts& parts,
                                                                  LocalServiceOptions options) {
  std::unique_ptr<LocalService> service(new LocalService(loop, parts, std::move(options)));
  PHALANX_RETURN_IF_ERROR(service->Listen());
  return service;
}

LocalService::LocalService(net::EventLoop& loop, const LocalParts& parts,
                           LocalServiceOptions options)
    : loop_(loop),
      parts_(parts),
      options_(std::move(options)),
      spare_(open("/dev/null", O_RDONLY | O_CLOEXEC)) {}

LocalService::~LocalService() {
  watcher_.reset();
  exits_.clear();
  loop_.Cancel(retry_timer_);
  if (listener_ >= 0) {
    struct stat found {};
    const char* path = options_.socket_path.c_str();
    // Another node can have replaced the socket; its file has another inode.
    if (lstat(path, &found) == 0 && found.st_ino == inode_) unlink(path);
    close(listener_);
  }
  if (spare_ >= 0) close(spare_);
  // Moved out first, because Close calls OnEnded, which erases from the map.
  const std::map<uint64_t, std::shared_ptr<LocalSession>> sessions = std::move(sessions_);
  sessions_.clear();
  for (const auto& [number, session] : sessions) {
    session->Close(absl::UnavailableError(
        absl::StrCat("node ", options_.greeting.node_name, " is shutting down")));
  }
}

absl::Status LocalService::Listen() {
  const std::string& path = options_.socket_path;
  PHALANX_ASSIGN_OR_RETURN(const sockaddr_un address, AddressOf(path));
  PHALANX_RETURN_IF_ERROR(PrepareFolder(path));
  PHALANX_RETURN_IF_ERROR(RemoveStale(path, address));
  const int made = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (made < 0) return Failed("create a socket for", path, errno);
  // The file gets its mode from the socket, so it is never open to other users, not even briefly.
  const bool bound =
      fchmod(made, 0600) == 0 &&
      bind(made, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0 &&
      listen(made, kBacklog) == 0;
  struct stat found {};
  if (!bound || lstat(path.c_str(), &found) != 0) {
    const int error = errno;
    close(made);
    return Failed("listen on", path, error);
  }
  listener_ = made;
  inode_ = found.st_ino;
  PHALANX_ASSIGN_OR_RETURN(watcher_, loop_.Watch(listener_));
  KeepAccepting();
  return absl::OkStatus();
}

void LocalService::KeepAccepting() {
  watcher_->OnReadable([this] { AcceptSome(); });
}

void LocalService::AcceptSome() {
  for (int i = 0; i < kAcceptsPerTurn && AcceptOne(); ++i) {
  }
  if (!std::exchange(exhausted_, false)) return KeepAccepting();
  // A timer, because the listener stays readable while a client waits.
  retry_timer_ = loop_.RunAt(loop_.Now() + kRetryAfter, [this] { AcceptSome(); });
}

bool LocalService::AcceptOne() {
  int socket = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
  if (socket >= 0) {
    Serve(socket);
    return true;
  }
  if (errno != EMFILE && errno != ENFILE) return errno == ECONNABORTED || errno == EINTR;
  // The spare descriptor makes room for one accept, so that the client gets an error and does not
  // wait in the backlog.
  if (spare_ >= 0) close(spare_);
  socket = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
  if (socket >= 0) {
    ++stats_.refused;
    Refuse(socket, options_.greeting,
           absl::ResourceExhaustedError(
               absl::StrCat("node ", options_.greeting.node_name, " has no descriptor left")));
  }
  exhausted_ = socket < 0;
  spare_ = open("/dev/null", O_RDONLY | O_CLOEXEC);
  PHALANX_LOG_EVERY(WARNING, absl::Seconds(1))
      << "no descriptor left for a client" << LogField("socket", options_.socket_path);
  return socket >= 0;
}

absl::Status LocalService::Check(int socket) const {
  ucred peer{};
  socklen_t length = sizeof(peer);
  if (getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &length) != 0) {
    return absl::UnavailableError(std::strerror(errno));
  }
  if (peer.uid != geteuid()) {
    return absl::PermissionDeniedError(absl::StrCat("node ", options_.greeting.node_name,
                                                    " serves only user ", geteuid(), ", not user ",
                                                    peer.uid));
  }
  if (sessions_.size() >= kMaxLocalClients) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "node ", options_.greeting.node_name, " already has ", sessions_.size(), " clients"));
  }
  return absl::OkStatus();
}

void LocalService::Serve(int socket) {
  const absl::Status checked = Check(socket);
  if (!checked.ok()) {
    ++stats_.refused;
    PHALANX_LOG_EVERY(WARNING, absl::Seconds(1))
        << "client refused" << LogField("why", checked.ToString());
    return Refuse(socket, options_.greeting, checked);
  }
  ++stats_.accepted;
  const uint64_t number = next_number_++;
  const auto session = std::make_shared<LocalSession>(
      loop_, parts_, options_.greeting, socket,
      [this, number](const absl::Status& why) { OnEnded(number, why); });
  sessions_[number] = session;
  session->Start();
}

void LocalService::OnEnded(uint64_t number, const absl::Status& why) {
  // Only a client's own messages end a session with InvalidArgument.
  if (why.code() == absl::StatusCode::kInvalidArgument) {
    ++stats_.misbehaved;
    PHALANX_LOG_EVERY(WARNING, absl::Seconds(1))
        << "client ended" << LogField("why", why.ToString());
  } else if (why.code() == absl::StatusCode::kFailedPrecondition) {
    ++stats_.refused;
  }
  const auto it = sessions_.find(number);
  if (it == sessions_.end()) return;
  // A client that left in order sees no memory any more.
  if (!why.ok() && it->second->has_shown_memory()) AwaitExit(it->second->socket());
  // Destroyed in a later turn: the session calls this from inside one of its methods.
  loop_.Post([session = std::move(it->second)] {});
  sessions_.erase(it);
}

void LocalService::AwaitExit(int socket) {
  if (exits_.size() >= kMaxAwaitedExits) return;
  const int handle = OpenPeerProcess(socket);
  if (handle < 0) {
    if (errno == ESRCH) options_.client_process_ended();
    return;
  }
  auto exit = std::make_unique<Exit>(handle);
  absl::StatusOr<std::unique_ptr<net::FdWatcher>> watcher = loop_.Watch(handle);
  if (!watcher.ok()) return;
  exit->watcher = *std::move(watcher);
  const uint64_t number = next_number_++;
  exit->watcher->OnReadable([this, number] {
    // Destroyed in a later turn: the watcher owns the closure that runs here.
    const auto ended = exits_.extract(number);
    loop_.Post([exit = std::shared_ptr<Exit>(std::move(ended.mapped()))] {});
    options_.client_process_ended();
  });
  exits_[number] = std::move(exit);
}

std::string LocalService::address() const { return absl::StrCat("unix:", options_.socket_path); }

LocalService::Stats LocalService::stats() const {
  Stats stats = stats_;
  stats.clients = sessions_.size();
  return stats;
}

}  // namespace phalanx::object_store
