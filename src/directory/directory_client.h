// A node's view of one shard: keeps a session up over streams from a ShardConnector (reconnecting within 100 ms, then backing off to
// half a second), and hands whole messages to its owner. Decides nothing; the same class runs in the daemon and in simulation.
//
// Thread rule: made, used and destroyed on the node's control loop; callbacks run there, never inside a call.
#ifndef PHALANX_DIRECTORY_DIRECTORY_CLIENT_H_
#define PHALANX_DIRECTORY_DIRECTORY_CLIENT_H_

#include <memory>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "src/common/executor.h"
#include "src/common/random.h"
#include "src/directory/message_stream.h"
#include "src/directory/session.h"

namespace phalanx::directory {

class DirectoryClient {
 public:
  struct Handlers {
    // A new session: Send RegisterBegin .. RegisterEnd now. Everything sent before is void.
    absl::AnyInvocable<void()> on_register;
    absl::AnyInvocable<void(const v1::ShardMessage&)> on_message;
    // The stream is up (true) or broken (false, with the reason); a refusal (other version, cluster, secret) comes here too,
    // and is tried again more slowly.
    absl::AnyInvocable<void(bool connected, const absl::Status& why)> on_connection;
  };

  DirectoryClient(Executor& executor, std::unique_ptr<ShardConnector> connector,
                  SessionConfig config, v1::NodeInfo self, Random random, Handlers handlers);
  ~DirectoryClient();

  // Queues for the current session; dropped silently when there is none yet, since registration will tell the state.
  void Send(v1::NodeMessage message);

  bool connected() const;
  const absl::Status& last_error() const;
  std::string target() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace phalanx::directory

#endif  // PHALANX_DIRECTORY_DIRECTORY_CLIENT_H_
