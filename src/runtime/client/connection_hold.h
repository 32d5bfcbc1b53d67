// The lock of a connection, and the work that is due after a change: see connection.h.
//
// Included only by the connection's own sources.
#ifndef PHALANX_RUNTIME_CLIENT_CONNECTION_HOLD_H_
#define PHALANX_RUNTIME_CLIENT_CONNECTION_HOLD_H_

#include "src/runtime/client/connection.h"

namespace phalanx::internal {

class Connection::Hold {
 public:
  // kPushOut: if bytes are left to send and no thread leads, the destructor waits a moment for the
  // node to read them.
  enum class Rest { kPushOut, kLeave };

  explicit Hold(Connection& connection, Rest rest = Rest::kPushOut)
      : connection_(connection), rest_(rest) {
    connection_.mu_.Lock();
  }
  ~Hold() {
    connection_.Flush();
    if (rest_ == Rest::kPushOut) connection_.PushOut();
    connection_.CloseSocketIfDone();
    connection_.WakeWaiters();
    connection_.Unlock();
  }
  Hold(const Hold&) = delete;
  Hold& operator=(const Hold&) = delete;

 private:
  Connection& connection_;
  const Rest rest_;
};

}  // namespace phalanx::internal

#endif  // PHALANX_RUNTIME_CLIENT_CONNECTION_HOLD_H_
