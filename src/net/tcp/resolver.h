// Resolver: looks host names up on threads of its own, so that no loop waits for a name server.
//
// Owned by TcpNetwork. Any thread may call LookUp. A few threads, made when they are first needed:
// a name that takes long to fail does not hold up the others. Destruction does not wait for lookups
// in progress; their results are dropped.
#ifndef PHALANX_NET_TCP_RESOLVER_H_
#define PHALANX_NET_TCP_RESOLVER_H_

#include <functional>
#include <memory>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/status/statusor.h"
#include "src/common/executor.h"
#include "src/net/address.h"
#include "src/net/tcp/socket_address.h"

namespace phalanx::net {

class Resolver {
 public:
  static constexpr int kMaxThreads = 4;
  // Lookups that wait for a thread; one more fails.
  static constexpr size_t kMaxWaiting = 1024;

  using Addresses = absl::StatusOr<std::vector<SocketAddress>>;
  using BlockingLookUp = std::function<Addresses(const HostPort&)>;
  using Done = absl::AnyInvocable<void(Addresses)>;

  explicit Resolver(BlockingLookUp look_up = &LookUpAddress);
  ~Resolver();

  // Calls `done` on `executor`, in a later turn: the addresses, or Unavailable with the name and
  // the cause (among them: too many lookups wait, or no thread can be made). The executor outlives
  // the resolver.
  void LookUp(HostPort host_port, Executor& executor, Done done);

 private:
  struct State;
  static absl::Status MakeRoom(const std::shared_ptr<State>& state);
  static void Work(const std::shared_ptr<State>& state);

  // Shared with the threads, which may be in a lookup when the resolver goes.
  const std::shared_ptr<State> state_;
};

}  // namespace phalanx::net

#endif  // PHALANX_NET_TCP_RESOLVER_H_
