// Gives the parts of the client library access to private members of Client, Future and Buffer.
#ifndef PHALANX_CLIENT_ACCESS_H_
#define PHALANX_CLIENT_ACCESS_H_

#include <memory>

#include "absl/strings/string_view.h"
#include "phalanx/client.h"
#include "phalanx/job.h"
#include "src/client/connection/call.h"
#include "src/client/connection/connection.h"
#include "src/client/jobs/declared_death.h"

namespace phalanx::spmd {
class Session;
}  // namespace phalanx::spmd

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
  // The call whose state the membership shares, and which ends when the last copy is dropped.
  static const std::shared_ptr<MembershipState>& StateOf(const Membership& membership) {
    return membership.state_;
  }
  // Kills this process, as a death that is declared to the launch, such as "mock=1,1,1,0".
  [[noreturn]] static void Die(const Membership& member, absl::string_view death);
  [[noreturn]] static void Die(const spmd::Session& session, absl::string_view death);
  // Kills this process if `phalanx launch --fail` has declared this point of the member's session.
  // Called once in each Load, Checkpoint and Leave, by the session's thread.
  static void DieIfDeclared(const Membership& member, DeathPoint::Kind point);
  // Where the task of the member is to be killed.
  static const DeathPoint& DeathOf(const Membership& member);
  // Kills this process so when the node has what was sent. Without the connection's lock.
  [[noreturn]] static void DieWhenSent(const Membership& member);
  // FileMapping::PrivatePages of the bytes that the buffer shows. The caller must unmap the pages
  // before it drops the buffer. Null if there are none.
  static char* PrivatePagesOf(const Buffer& buffer);
};

}  // namespace phalanx::internal

#endif  // PHALANX_CLIENT_ACCESS_H_
