// The Unix socket on which a node serves the clients of its host: a rim around the Store.
//
//   listening socket ──► LocalSession × n ──► Store, Reducer
//
// The socket is 0600, in a folder that is made 0700 if there is none, and only processes of the
// node's own user are served. A socket that a dead node left behind is replaced; a socket with a
// listener is not.
//
// Made and destroyed while the loop does not run, or on it; in between loop thread only. Owned by
// the node's daemon; loop, store and reducer outlive it.
#ifndef PHALANX_LOCAL_LOCAL_SERVICE_H_
#define PHALANX_LOCAL_LOCAL_SERVICE_H_

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "src/collectives/reducer/reducer.h"
#include "src/local/local_session.h"
#include "src/net/loop/event_loop.h"
#include "src/object_store/store/store.h"

namespace phalanx::object_store {

// More clients are refused with ResourceExhausted.
inline constexpr size_t kMaxLocalClients = 4096;

struct LocalServiceOptions {
  // At most 107 bytes.
  std::string socket_path;
  LocalGreeting greeting;
  // Called on the loop when a process ends that could still see the store's memory after its
  // connection broke (SharedMemory::Reconsider).
  std::function<void()> client_process_ended = [] {};
};

class LocalService {
 public:
  // Listens from the first turn of the loop on. AlreadyExists when another process listens there or
  // the path is something else than a socket, FailedPrecondition when others may write to the
  // folder, InvalidArgument for a path that is too long, Unavailable; the text names the path.
  static absl::StatusOr<std::unique_ptr<LocalService>> Start(net::EventLoop& loop, Store& store,
                                                             collectives::Reducer& reducer,
                                                             LocalServiceOptions options);
  // Sends every client a Goodbye and closes the connections; removes the socket.
  ~LocalService();
  LocalService(const LocalService&) = delete;
  LocalService& operator=(const LocalService&) = delete;

  // "unix:/path".
  std::string address() const;

  struct Stats {
    uint64_t accepted = 0;
    // Of other users, other versions, too many.
    uint64_t refused = 0;
    // Ended because of what they sent.
    uint64_t misbehaved = 0;
    size_t clients = 0;
  };
  Stats stats() const;

 private:
  LocalService(net::EventLoop& loop, Store& store, collectives::Reducer& reducer,
               LocalServiceOptions options);
  absl::Status Listen();
  void KeepAccepting();
  void AcceptSome();
  // Returns false if no client waits to be accepted.
  bool AcceptOne();
  // OK if the process at the other end may be served.
  absl::Status Check(int socket) const;
  void Serve(int socket);
  void OnEnded(uint64_t number, const absl::Status& why);
  // Until the process at the other end of the socket, which is still open here, has ended.
  void AwaitExit(int socket);

  // Constant after Start.
  net::EventLoop& loop_;
  Store& store_;
  collectives::Reducer& reducer_;
  const LocalServiceOptions options_;
  ino_t inode_ = 0;

  int listener_ = -1;
  // Closed for a moment if the process has no descriptor left, so that a client can be accepted and
  // refused with that error.
  int spare_ = -1;
  // There was no descriptor even for a refusal: no client is accepted for a while.
  bool exhausted_ = false;
  TimerId retry_timer_ = 0;
  std::unique_ptr<net::FdWatcher> watcher_;
  uint64_t next_number_ = 1;
  std::map<uint64_t, std::shared_ptr<LocalSession>> sessions_;
  // Processes that are awaited, by a number.
  struct Exit;
  std::map<uint64_t, std::unique_ptr<Exit>> exits_;
  Stats stats_;
};

}  // namespace phalanx::object_store

#endif  // PHALANX_LOCAL_LOCAL_SERVICE_H_
