// What the library's own parts see of clients and futures.
#ifndef PHALANX_RUNTIME_CLIENT_ACCESS_H_
#define PHALANX_RUNTIME_CLIENT_ACCESS_H_

#include <memory>

#include "phalanx/client.h"
#include "src/runtime/client/call.h"
#include "src/runtime/client/connection.h"

namespace phalanx::internal {

class Access {
 public:
  static const std::shared_ptr<Connection>& ConnectionOf(const Client& client) {
    return client.connection_;
  }
  template <typename T>
  static const std::shared_ptr<FutureState<T>>& StateOf(const Future<T>& future) {
    return future.state_;
  }
  // FileMapping::PrivatePages of what the buffer looks at. They must be unmapped before it is gone.
  static char* PrivatePagesOf(const Buffer& buffer);
};

}  // namespace phalanx::internal

#endif  // PHALANX_RUNTIME_CLIENT_ACCESS_H_
