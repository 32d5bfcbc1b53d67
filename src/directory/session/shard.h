// One running shard of the directory: sessions over message streams around a DirectoryCore. The
// class makes no decisions of the protocol; the daemon (streams from gRPC and TCP) and the
// simulation run the same class.
//
//   ShardStream ──► handshake ──► ShardSession ──► DirectoryCore
//        ▲                             ▲                │
//        └─────────── frames ──────────┴─── outbox ◄────┘
//
// If a stream breaks, its session waits for the next stream until the grace runs out. If a session
// is fenced, says goodbye or does not acknowledge, it ends, and its node registers again.
//
// Thread rule: created, used and destroyed on one executor (the shard's control loop), which
// outlives it. Owned by the daemon's main or the simulated process.
#ifndef PHALANX_DIRECTORY_SESSION_SHARD_H_
#define PHALANX_DIRECTORY_SESSION_SHARD_H_

#include <cstddef>
#include <cstdint>
#include <memory>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "phalanx/v1/tools.pb.h"
#include "src/common/random.h"
#include "src/common/time/executor.h"
#include "src/directory/core/directory_core.h"
#include "src/directory/session/message_stream.h"
#include "src/directory/session/session.h"

namespace phalanx::directory {

// The limits of all streams, and of those that have not proved the secret. Above either limit the
// shard closes the oldest unproven stream with ResourceExhausted.
inline constexpr size_t kMaxStreams = 4096;
inline constexpr size_t kMaxUnprovenStreams = 256;

class Shard {
 public:
  // `random` seeds the shard's incarnation, session ids and the core.
  Shard(Executor& executor, SessionConfig session, DirectoryOptions options, Random random);
  // Closes all streams with Unavailable.
  ~Shard();

  // Takes over a stream that a node opened. Closes the stream if it has not proved the secret
  // within the lease.
  void Accept(std::unique_ptr<ShardStream> stream);

  // For a log: called when a session begins or ends, when the shard refuses a stream, and for a
  // malformed message. `node` is the name in the node's hello, or the stream's peer.
  using Observer = absl::AnyInvocable<void(absl::string_view event, absl::string_view node,
                                           const absl::Status& why)>;
  void Observe(Observer observer);

  const DirectoryCore& core() const;
  const SessionConfig& config() const;
  uint64_t incarnation() const;
  // As DirectoryCore::DrainNode.
  absl::Status DrainNode(const v1::DrainNodeRequest& request, v1::DrainNodeResponse* out);
  // Fills in the shard index, the incarnation, the uptime and the sessions too.
  void FillStatus(v1::GetStatusResponse* out) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace phalanx::directory

#endif  // PHALANX_DIRECTORY_SESSION_SHARD_H_
