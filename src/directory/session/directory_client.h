// A node's view of one shard: keeps a session up over streams from a ShardConnector, and passes
// whole messages to its owner. Makes no decisions of the protocol; the daemon and the simulation
// run the same class.
//
// Thread rule: created, used and destroyed on the node's control loop; callbacks run there, never
// inside a call.
#ifndef PHALANX_DIRECTORY_SESSION_DIRECTORY_CLIENT_H_
#define PHALANX_DIRECTORY_SESSION_DIRECTORY_CLIENT_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "phalanx/v1/directory.pb.h"
#include "src/common/random.h"
#include "src/common/time/executor.h"
#include "src/directory/session/message_stream.h"
#include "src/directory/session/session.h"

namespace phalanx::directory {

// The delay of the first reconnect after a stream broke, plus or minus a quarter: short, because
// the shard does not wait long.
inline constexpr absl::Duration kFirstReconnectDelay = absl::Milliseconds(4);
// The delay of later attempts: the node finds a restarted shard within 100 ms.
inline constexpr absl::Duration kReconnectDelay = absl::Milliseconds(40);
// If the shard is unreachable for so long, the node retries less often.
inline constexpr absl::Duration kReconnectPatience = absl::Seconds(10);
inline constexpr absl::Duration kSlowReconnectDelay = absl::Milliseconds(400);
// If the shard refuses the node (other version, cluster, secret), an early retry will hardly
// succeed.
inline constexpr absl::Duration kRefusedDelay = absl::Seconds(1);

class DirectoryClient {
 public:
  struct Handlers {
    // A new session: Send RegisterBegin .. RegisterEnd now. Everything sent before is void.
    absl::AnyInvocable<void()> on_register;
    absl::AnyInvocable<void(const v1::ShardMessage&)> on_message;
    // The shard has received what was sent at `heard`, by this node's clock, in this session. After
    // on_register, and after the messages that arrived with this news. Can be empty.
    absl::AnyInvocable<void(Instant heard, absl::Duration lease)> on_heard = nullptr;
    // The stream is up (true; before on_register) or broken (false, with the reason). Also called,
    // once per reason, if the shard cannot be reached or refuses the node.
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
  // Says goodbye if possible: the session then ends at once, and the shard does not wait for the
  // lease.
  ~DirectoryClient();

  // Queues for the current session; the messages of one turn travel in one batch. Drops the message
  // silently if there is no session yet, since registration will report the state.
  void Send(v1::NodeMessage&& message);

  bool connected() const;
  std::string target() const;
  Counters counters() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace phalanx::directory

#endif  // PHALANX_DIRECTORY_SESSION_DIRECTORY_CLIENT_H_
