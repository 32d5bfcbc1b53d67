// The descriptor that a program's own event loop watches: readable while a client has something to
// do.
//
// An epoll instance over the socket, a timer for the next deadline, and an event for callbacks that
// wait to be run. Owned by a connection, used under its lock; made when it is first asked for.
#ifndef PHALANX_RUNTIME_CLIENT_ATTENTION_H_
#define PHALANX_RUNTIME_CLIENT_ATTENTION_H_

#include "absl/status/statusor.h"
#include "src/common/instant.h"

namespace phalanx::internal {

class Attention {
 public:
  Attention() = default;
  ~Attention();
  Attention(const Attention&) = delete;
  Attention& operator=(const Attention&) = delete;

  bool made() const { return epoll_ >= 0; }
  // -1 when the system refuses; the next call tries again.
  int fd();

  struct Wish {
    int socket = -1;  // -1: none, or it has ended
    bool write = false;
    bool callbacks = false;
    Instant deadline = Instant::Infinite();
    friend bool operator==(const Wish&, const Wish&) = default;
  };
  // What shall make it readable. Costs nothing when it is as before. REQUIRES: made().
  void Watch(const Wish& wish);

 private:
  void WatchSocket(const Wish& wish);

  int epoll_ = -1;
  int event_ = -1;
  int timer_ = -1;
  Wish now_;
};

}  // namespace phalanx::internal

#endif  // PHALANX_RUNTIME_CLIENT_ATTENTION_H_
