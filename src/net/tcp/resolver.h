// Resolver: looks up host names on its own threads, so that no loop waits for a name server.
//
// Owned by TcpNetwork. Any thread may call LookUp. It starts up to kMaxThreads threads as they are
// needed, so that a name that takes long to fail does not delay the others. The destructor does not
// wait for lookups in progress; it drops their results.
#ifndef PHALANX_NET_TCP_RESOLVER_H_
#define PHALANX_NET_TCP_RESOLVER_H_

#include <functional>
#include <memory>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/status/statusor.h"
#include "src/common/time/executor.h"
#include "src/net/stream/address.h"
#include "src/net/tcp/socket_address.h"

namespace phalanx::net {

class Resolver {
 public:
  static constexpr int kMaxThreads = 4;
  // The number of lookups that can wait for a thread. Further ones fail.
  static constexpr size_t kMaxWaiting = 1024;

  using Addresses = absl::StatusOr<std::vector<SocketAddress>>;
  using BlockingLookUp = std::function<Addresses(const HostPort&)>;
  using Done = absl::AnyInvocable<void(Addresses)>;

  explicit Resolver(BlockingLookUp look_up = &LookUpAddress);
  ~Resolver();

  // Calls `done` on `executor`, in a later turn, with the addresses or with Unavailable, which
  // names the host and the cause (also: too many waiting lookups, or no thread can be created). The
  // executor outlives the resolver.
  void LookUp(HostPort host_port, Executor& executor, Done done);

 private:
  struct State;
  static absl::Status MakeRoom(const std::shared_ptr<State>& state);
  static void Work(const std::shared_ptr<State>& state);

  // Shared with the threads, which can be in a lookup when the resolver is destroyed.
  const std::shared_ptr<State> state_;
};

}  // namespace phalanx::net

#endif  // PHALANX_NET_TCP_RESOLVER_H_
