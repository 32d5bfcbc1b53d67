// The lock of a connection, and the work that is due after a change: see connection.h.
//
// Included only by the connection's own sources.
#ifndef PHALANX_CLIENT_CONNECTION_CONNECTION_LOCK_H_
#define PHALANX_CLIENT_CONNECTION_CONNECTION_LOCK_H_

#include "src/client/connection/connection.h"

namespace phalanx::internal {

class Connection::Lock {
 public:
  // kPushOut: if bytes are left to send and no thread leads, the destructor waits a moment for the
  // node to read them.
  enum class Unsent { kPushOut, kLeave };

  explicit Lock(Connection& connection, Unsent unsent = Unsent::kPushOut)
      : connection_(connection), unsent_(unsent) {
    connection_.mu_.Lock();
  }
  ~Lock() {
    // A closed connection sends only what gives up its pins, and must not wait for a batch.
    if (connection_.closed_ || !connection_.out_.batching()) {
      connection_.Flush();
      if (unsent_ == Unsent::kPushOut) connection_.PushOut();
    }
    connection_.CloseSocketIfDone();
    connection_.waiters_.WakeEnded(!connection_.ready_.empty());
    connection_.Unlock();
  }
  Lock(const Lock&) = delete;
  Lock& operator=(const Lock&) = delete;

 private:
  Connection& connection_;
  const Unsent unsent_;
};

}  // namespace phalanx::internal

#endif  // PHALANX_CLIENT_CONNECTION_CONNECTION_LOCK_H_
