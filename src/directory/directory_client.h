// A node's view of one shard: keeps a session up over streams from a ShardConnector, and hands
// whole messages to its owner. Decides nothing; the same class runs in the daemon and in
// simulation.
//
// Thread rule: made, used and destroyed on the node's control loop; callbacks run there, never
// inside a call.
#ifndef PHALANX_DIRECTORY_DIRECTORY_CLIENT_H_
#define PHALANX_DIRECTORY_DIRECTORY_CLIENT_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "phalanx/v1/directory.pb.h"
#include "src/common/executor.h"
#include "src/common/random.h"
#include "src/directory/message_stream.h"
#include "src/directory/session.h"

namespace phalanx::directory {

// After a stream broke the next is opened so soon, give or take a quarter: the shard does not wait
// for long.
inline constexpr absl::Duration kFirstReconnectDelay = absl::Milliseconds(4);
// And then every so often: a shard that restarts is found within 100 ms.
inline constexpr absl::Duration kReconnectDelay = absl::Milliseconds(40);
// A shard that stays away for so long is then asked less often.
inline constexpr absl::Duration kReconnectPatience = absl::Seconds(10);
inline constexpr absl::Duration kSlowReconnectDelay = absl::Milliseconds(400);
// A shard that refuses us (other version, cluster, secret) will hardly change its mind.
inline constexpr absl::Duration kRefusedDelay = absl::Seconds(1);

class DirectoryClient {
 public:
  struct Handlers {
    // A new session: Send RegisterBegin .. RegisterEnd now. Everything sent before is void.
    absl::AnyInvocable<void()> on_register;
    absl::AnyInvocable<void(const v1::ShardMessage&)> on_message;
    // The stream is up (true; before on_register) or broken (false, with the reason). A shard that
    // cannot be reached or that refuses us comes here too, once per reason.
    absl::AnyInvocable<void(bool connected, const absl::Status& why)> on_connection;
  };

  struct Counters {
    uint64_t streams = 0;   // attempts
    uint64_t sessions = 0;  // new ones
    uint64_t resumed = 0;
    uint64_t overflows = 0;  // sessions given up because too much was unacknowledged
    uint64_t oversized = 0;  // messages too long to be sent
  };

  // Begins to connect. `executor` outlives this.
  DirectoryClient(Executor& executor, std::unique_ptr<ShardConnector> connector,
                  SessionConfig config, v1::NodeInfo self, Random random, Handlers handlers);
  // Says goodbye if it can: the session ends at once, and the lease is not waited for.
  ~DirectoryClient();

  // Queues for the current session; what is sent in one turn travels in one batch. Dropped silently
  // when there is no session yet, since registration will tell the state.
  void Send(v1::NodeMessage message);

  bool connected() const;
  std::string target() const;
  Counters counters() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace phalanx::directory

#endif  // PHALANX_DIRECTORY_DIRECTORY_CLIENT_H_
