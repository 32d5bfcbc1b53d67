// The descriptor that a program's own event loop watches. It is readable while the client has
// something to do.
//
// It is an epoll instance over the socket, a timer for the next deadline, and an event that is set
// while callbacks wait to run. Owned by a connection, used under its lock, and created by the first
// call of fd().
#ifndef PHALANX_CLIENT_SOCKET_READINESS_FD_H_
#define PHALANX_CLIENT_SOCKET_READINESS_FD_H_

#include "absl/status/statusor.h"
#include "src/common/time/instant.h"

namespace phalanx::internal {

class ReadinessFd {
 public:
  ReadinessFd() = default;
  ~ReadinessFd();
  ReadinessFd(const ReadinessFd&) = delete;
  ReadinessFd& operator=(const ReadinessFd&) = delete;

  bool made() const { return epoll_ >= 0; }
  // Returns -1 if the system refuses a descriptor; the next call tries again.
  int fd();

  struct Interest {
    int socket = -1;  // -1: no socket, or the stream has ended
    bool write = false;
    bool callbacks = false;
    Instant deadline = Instant::Infinite();
    friend bool operator==(const Interest&, const Interest&) = default;
  };
  // Sets the events that make the descriptor readable. Makes no system call if nothing changes.
  // REQUIRES: made().
  void Watch(const Interest& interest);

 private:
  void WatchSocket(const Interest& interest);

  int epoll_ = -1;
  int event_ = -1;
  int timer_ = -1;
  Interest current_;
};

}  // namespace phalanx::internal

#endif  // PHALANX_CLIENT_SOCKET_READINESS_FD_H_
