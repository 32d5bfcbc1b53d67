// The Unix socket on which a node serves the clients of its host.
//
//   listening socket ──► LocalSession × n ──► Store, Reducer, Members
//
// The socket has the mode 0600, in a folder that is created with 0700 if it does not exist. The
// node serves only processes of its own user. It replaces a socket that a dead node left behind,
// but not a socket with a listener.
//
// Created and destroyed while the loop does not run, or on the loop; otherwise loop thread only.
// Owned by the node's daemon; loop and parts outlive it.
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
#include "src/local/local_session.h"
#include "src/net/loop/event_loop.h"

namespace phalanx::object_store {

// The node refuses more clients with ResourceExhausted.
inline constexpr size_t kMaxLocalClients = 4096;

struct LocalServiceOptions {
  // At most 107 bytes.
  std::string socket_path;
  LocalGreeting greeting;
  // Called on the loop when a process has ended that could see the store's memory after its
  // connection broke (SharedMemory::Reconsider).
  std::function<void()> client_process_ended = [] {};
};

class LocalService {
 public:
  // Listens from the first turn of the loop on. Errors: AlreadyExists if another process listens
  // there or the path is not a socket, FailedPrecondition if other users can write to the folder,
  // InvalidArgument if the path is too long, Unavailable. The text names the path.
  static absl::StatusOr<std::unique_ptr<LocalService>> Start(net::EventLoop& loop,
                                                             const LocalParts& parts,
                                                             LocalServiceOptions options);
  // Sends every client a Goodbye and closes the connections; removes the socket.
  ~LocalService();
  LocalService(const LocalService&) = delete;
  LocalService& operator=(const LocalService&) = delete;

  // "unix:/path".
  std::string address() const;

  struct Stats {
    uint64_t accepted = 0;
    // Clients of other users or versions, and beyond the limit.
    uint64_t refused = 0;
    // Ended by a message that a client must not send.
    uint64_t misbehaved = 0;
    size_t clients = 0;
  };
  Stats stats() const;

 private:
  LocalService(net::EventLoop& loop, const LocalParts& parts, LocalServiceOptions options);
  absl::Status Listen();
  void KeepAccepting();
  void AcceptSome();
  // Returns false if no client waits to be accepted.
  bool AcceptOne();
  // Returns OK if the node serves the process at the other end.
  absl::Status Check(int socket) const;
  void Serve(int socket);
  void OnEnded(uint64_t number, const absl::Status& why);
  // Calls client_process_ended when the process at the other end of this open socket has ended.
  void AwaitExit(int socket);

  // Constant after Start.
  net::EventLoop& loop_;
  const LocalParts parts_;
  const LocalServiceOptions options_;
  ino_t inode_ = 0;

  int listener_ = -1;
  // Closed for a moment if the process has no descriptor left, so that a client can be accepted and
  // refused with that error.
  int spare_ = -1;
  // No descriptor was left even for a refusal: the next accept waits for retry_timer_.
  bool exhausted_ = false;
  TimerId retry_timer_ = 0;
  std::unique_ptr<net::FdWatcher> watcher_;
  uint64_t next_number_ = 1;
  std::map<uint64_t, std::shared_ptr<LocalSession>> sessions_;
  // Processes whose end AwaitExit waits for.
  struct Exit;
  std::map<uint64_t, std::unique_ptr<Exit>> exits_;
  Stats stats_;
};

}  // namespace phalanx::object_store

#endif  // PHALANX_LOCAL_LOCAL_SERVICE_H_
