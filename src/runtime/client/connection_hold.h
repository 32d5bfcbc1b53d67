// The lock of a connection with what is due after a change: see connection.h.
//
// Included by the connection's own sources only.
#ifndef PHALANX_RUNTIME_CLIENT_CONNECTION_HOLD_H_
#define PHALANX_RUNTIME_CLIENT_CONNECTION_HOLD_H_

#include "src/runtime/client/connection.h"

namespace phalanx::internal {

class Connection::Hold {
 public:
  explicit Hold(Connection& connection) : connection_(connection) { connection_.mu_.Lock(); }
  ~Hold() {
    connection_.Flush();
    connection_.CloseSocketIfDone();
    connection_.WakeWaiters();
    connection_.Unlock();
  }
  Hold(const Hold&) = delete;
  Hold& operator=(const Hold&) = delete;

 private:
  Connection& connection_;
};

}  // namespace phalanx::internal

#endif  // PHALANX_RUNTIME_CLIENT_CONNECTION_HOLD_H_
